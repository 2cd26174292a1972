// Processes of one user connect and close in a loop, or keep the connections. Another user's connection is
// taken in nevertheless, soon. The kernel has one queue for all of them.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <deque>

#include "base/system/unix_socket.h"
#include "tests/hostile/clients/as_user.h"
#include "tests/hostile/clients/silent_clients.h"
#include "tests/integration/fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/lanes/frame_lane.h"

namespace gpumem::test {
namespace {

constexpr int kFlooders = 4, kUntilFlooded = 1000;
constexpr std::size_t kKeptByEach = 900;  // below the usual limit of open files
constexpr int kMeasured = 25;
// To identify a whole queue of connections, one after the other, takes longer.
constexpr std::chrono::milliseconds kSoon{100};

struct FloodKind {
  const char* name;
  std::size_t keeps;  ///< connections of each flooder
};

struct ConnectionFlood : BrokerTest, testing::WithParamInterface<FloodKind> {
  ConnectionFlood() : BrokerTest({.config = shared()}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
  void TearDown() override {
    for (const pid_t one : flooders_) {
      ::kill(one, SIGKILL);
      ::waitpid(one, nullptr, 0);
    }
  }

  /// Returns once each flooder has connected many times.
  void flood(const std::string& name, int type) {
    const std::string path = broker_.folder() + "/" + name;
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd heard(ends[0]);
    UniqueFd told(ends[1]);
    for (int i = 0; i < kFlooders; ++i) {
      const pid_t child = ::fork();
      if (child == 0) connect_for_ever(path, type, GetParam().keeps, told.get());
      flooders_.push_back(child);
    }
    told.reset();
    char byte;
    for (int i = 0; i < kFlooders; ++i) ASSERT_EQ(::read(heard.get(), &byte, 1), 1) << "a flooder has ended";
  }
  [[noreturn]] static void connect_for_ever(const std::string& path, int type, std::size_t keeps, int told) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    constexpr gid_t kGroup = BrokerProcess::kGroup;
    if (::nice(10) < 0 || ::setresgid(kGroup, kGroup, kGroup) != 0 ||
        ::setresuid(10'002, 10'002, 10'002) != 0)
      ::_exit(1);
    std::deque<UniqueFd> kept;
    for (int i = 0;; i = std::min(i + 1, kUntilFlooded + 1)) {
      UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
      if (connect_unix(socket.get(), path) == 0) kept.push_back(std::move(socket));
      if (kept.size() > keeps) kept.pop_front();
      if (i == kUntilFlooded && ::write(told, "", 1) != 1) ::_exit(1);
    }
  }
  /// The median time of `connect` by another user; of several measurements one counts, for the processors may
  /// be busy.
  template <class Connect>
  void expect_soon(Connect&& connect) {
    using Clock = std::chrono::steady_clock;
    const AsUser user(10'003, BrokerProcess::kGroup);
    Clock::duration median{};
    EXPECT_TRUE(eventually([&] {
      std::vector<Clock::duration> times;
      for (int i = 0; i < kMeasured; ++i) {
        const auto begin = Clock::now();
        connect();
        times.push_back(Clock::now() - begin);
      }
      std::ranges::nth_element(times, times.begin() + kMeasured / 2);
      median = times[kMeasured / 2];
      return median < kSoon;
    }));
    RecordProperty("median_us", std::to_string(median / std::chrono::microseconds(1)));
  }

  std::vector<pid_t> flooders_;
};

TEST_P(ConnectionFlood, OfOneUserDoesNotKeepAnotherFromALane) {
  flood(kLaneSocketName, SOCK_SEQPACKET);
  expect_soon([&] { EXPECT_TRUE(FrameLane(broker_.folder()).is_welcomed()); });
}

// The broker closes a connection that does not speak HTTP/2.
TEST_P(ConnectionFlood, OfOneUserDoesNotKeepAnotherFromApi) {
  flood(kApiSocketName, SOCK_STREAM);
  expect_soon([&] {
    const UniqueFd socket = connect_to_stream(broker_.folder() + "/" + kApiSocketName);
    EXPECT_EQ(::send(socket.get(), "GET /", 5, MSG_NOSIGNAL), 5);
    char byte;
    EXPECT_LE(::recv(socket.get(), &byte, 1, 0), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, ConnectionFlood,
                         testing::Values(FloodKind{"Closed", 0}, FloodKind{"Kept", kKeptByEach}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace gpumem::test
