// A log that nobody reads: the broker goes on, and ends when it is told to.
#include <fcntl.h>
#include <unistd.h>

#include "sim/machine/machine.h"
#include "tests/integration/fixture.h"
#include "tests/support/lanes/raw_lane.h"

namespace gpumem::test {
namespace {

// Everything is logged to a pipe that is full from the start.
struct UnreadLog : testing::Test {
  UnreadLog() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_end_.reset(ends[0]);
    const UniqueFd write_end(ends[1]);
    fill(write_end.get());
    broker_ = std::make_unique<Child>(
        ChildOptions{.program = gpumemd_program(),
                     .arguments = {"--simulate", "1x64MiB", "--runtime-dir", run(), "--log-level", "trace"},
                     .environment = {},
                     .user = {},
                     .output = write_end.get()});
    EXPECT_TRUE(eventually([&] {
      auto monitor = cli::Monitor::connect(run());
      return monitor && monitor->status();
    }));
  }
  ~UnreadLog() override {
    broker_->kill();
    static_cast<void>(sim::remove_machine(folder_ / "run" / "driver"));
  }
  static void fill(int pipe) {
    const std::string piece(4096, '\n');
    ::fcntl(pipe, F_SETFL, O_NONBLOCK);
    while (::write(pipe, piece.data(), piece.size()) > 0) {
    }
    ::fcntl(pipe, F_SETFL, 0);
  }
  std::string run() const { return folder_ / "run"; }
  /// Has the broker warn: so often a second it does.
  void break_the_protocol() {
    RawLane lane(run());
    EXPECT_TRUE(lane.send("nonsense"));
    EXPECT_TRUE(lane.is_closed_by_broker());
  }

  TemporaryFolder folder_;
  UniqueFd read_end_;
  std::unique_ptr<Child> broker_;
};

TEST_F(UnreadLog, DoesNotHoldTheBrokerUp) {
  for (int i = 0; i < 200; ++i) break_the_protocol();
  auto monitor = cli::Monitor::connect(run());
  ASSERT_TRUE(monitor);
  EXPECT_TRUE(monitor->status());
}

TEST_F(UnreadLog, DoesNotHoldTheEndUp) {
  break_the_protocol();
  broker_->signal(SIGTERM);
  EXPECT_EQ(broker_->wait(), 0);
}

TEST_F(UnreadLog, IsWrittenWhenItIsRead) {
  break_the_protocol();
  std::string text;
  char piece[4096];
  while (text.find("a broken frame") == std::string::npos) {
    const ssize_t count = ::read(read_end_.get(), piece, sizeof piece);
    ASSERT_GT(count, 0);
    text.append(piece, static_cast<std::size_t>(count));
  }
}

}  // namespace
}  // namespace gpumem::test
