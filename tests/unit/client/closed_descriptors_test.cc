// A program that closes descriptors which it has not opened, and gets their numbers for files of its own.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "client/process/background_task.h"
#include "tests/support/eventually.h"
#include "tests/support/in_child.h"
#include "tests/unit/client/lane/lane_fixture.h"
#include "tests/unit/client/slice_fixture.h"

namespace gpumem::client::test {
namespace {

using gpumem::test::eventually;

std::set<int> open_descriptors() {
  std::set<int> open;
  for (int fd = 0; fd < 1024; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) open.insert(fd);
  }
  return open;
}

/// A socket of the program's, which has got the number of a descriptor that it has closed.
class Stranger {
 public:
  explicit Stranger(int number) : number_(number) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    own_.reset(ends[0]);
    other_.reset(ends[1]);
    if (ends[0] == number)
      static_cast<void>(own_.release());  // the library had closed it just then
    else
      EXPECT_EQ(::dup3(ends[0], number, O_CLOEXEC), number);
    EXPECT_EQ(::send(ends[1], "mine", 4, 0), 4) << "for whoever reads what is not its own";
    own_.reset();
  }
  ~Stranger() { ::close(number_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  /// Nothing has been written to it or read from it, and it is open.
  void expect_untouched() const {
    char bytes[16];
    EXPECT_EQ(::recv(other_.get(), bytes, sizeof bytes, 0), -1)
        << "something was written to it, or it is closed";
    EXPECT_EQ(::recv(number_, bytes, sizeof bytes, MSG_PEEK), 4) << "it was read, or is closed";
  }

 private:
  const int number_;
  UniqueFd own_, other_;
};

/// The number of this process's socket that is connected to `path`.
int connected_to(const std::filesystem::path& path) {
  for (const int fd : open_descriptors()) {
    sockaddr_un peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && path.native() == peer.sun_path)
      return fd;
  }
  return -1;
}

void expect_descriptors_closed(const Result<void>& done) {
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kFailedPrecondition);
  EXPECT_NE(done.error().message.find("this process has closed the library's descriptors"), std::string::npos)
      << done.error().message;
}

OwnFd own_pipe_end() {
  const NoFork no_fork;
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ::close(ends[1]);
  return OwnFd(no_fork, UniqueFd(ends[0]));
}

TEST(ClosedDescriptors, OfWhichAnotherHasTheNumberAreLeftAlone) {
  auto own = std::make_unique<OwnFd>(own_pipe_end());
  EXPECT_TRUE(own->is_intact());
  const Stranger stranger(own->get());
  EXPECT_FALSE(own->is_intact());
  EXPECT_FALSE(replace_descriptor(*own, own_pipe_end()));
  own.reset();
  stranger.expect_untouched();
}

TEST(ClosedDescriptors, OfWhichAnotherHasTheNumberStayOpenInForkedChildren) {
  const OwnFd own = own_pipe_end();
  const Stranger stranger(own.get());
  const int number = own.get();
  EXPECT_TRUE(gpumem::test::in_child([number] { return ::fcntl(number, F_GETFD) >= 0; }));
}

TEST(ClosedDescriptors, ThatWereReplacedAreIntact) {
  const OwnFd own = own_pipe_end();
  EXPECT_TRUE(replace_descriptor(own, own_pipe_end()));
  EXPECT_TRUE(own.is_intact());
}

TEST(ClosedDescriptors, OfTheLaneEndTheSession) {
  FakeLane fake([](int socket) {
    greet(socket);
    answer_all(socket);
  });
  auto lane = connected(fake);
  ASSERT_TRUE(lane->call(lane::Ping{}));
  const Stranger stranger(connected_to(fake.socket()));
  const auto done = lane->call(lane::Ping{});
  expect_descriptors_closed(done ? Result<void>() : done.error());
  expect_descriptors_closed(lane->accept(1));
  EXPECT_TRUE(lane->is_closed());
  lane->tell_later(lane::Return{});
  lane->goodbye();
  lane.reset();
  stranger.expect_untouched();
}

TEST(ClosedDescriptors, OfASessionThatCouldBeResumedEndIt) {
  FakeLane fake([](int socket) {
    greet(socket);
    answer_all(socket);
  });
  auto session = Session::connect({fake.folder(), "test"});
  ASSERT_TRUE(session) << to_string(session.error());
  const Stranger stranger(connected_to(fake.socket()));
  expect_descriptors_closed(session->ping());
  expect_descriptors_closed(session->ping());
  session = Error{Code::kCancelled, "closed"};
  stranger.expect_untouched();
}

// A session that does not answer requests for memory would be ended for it.
TEST(ClosedDescriptors, OfTheDoorbellEndTheSession) {
  FakeBroker broker;
  const std::set<int> before = open_descriptors();
  auto session = Session::connect({broker.folder(), "test"});
  ASSERT_TRUE(session) << to_string(session.error());
  ASSERT_TRUE(session->on_pressure([](const Pressure&) { return Bytes{}; }));
  int doorbell = -1;
  for (const int fd : open_descriptors()) {
    struct stat info {};
    const bool reads = (::fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY;
    if (!before.contains(fd) && ::fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode) && reads) doorbell = fd;
  }
  ASSERT_GE(doorbell, 0);
  const Stranger stranger(doorbell);
  broker.drop_bell();
  pollfd lane{connected_to(std::filesystem::path(broker.folder()) / "lane.sock"), POLLRDHUP, 0};
  ASSERT_GE(lane.fd, 0);
  EXPECT_EQ(::poll(&lane, 1, -1), 1) << "the broker learns of it";
  expect_descriptors_closed(session->ping());
  session = Error{Code::kCancelled, "closed"};
  stranger.expect_untouched();
}

TEST(ClosedDescriptors, OfTheBackgroundThreadAreMadeAnew) {
  constexpr BackgroundTask::When kRarely{.period = std::chrono::hours(1)};
  const std::set<int> before = open_descriptors();
  std::optional<BackgroundTask> first(std::in_place, kRarely, [] { return true; });
  ASSERT_TRUE(first->begin());
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (const int fd : open_descriptors()) {
    if (!before.contains(fd)) strangers.push_back(std::make_unique<Stranger>(fd));
  }
  ASSERT_EQ(strangers.size(), 2U);
  std::atomic<int> times{0};
  std::optional<BackgroundTask> second(std::in_place,
                                       BackgroundTask::When{.period = std::chrono::milliseconds(1)},
                                       [&] { return ++times, true; });
  ASSERT_TRUE(second->begin());
  EXPECT_TRUE(eventually([&] { return times > 3; })) << "the thread has not heard of the second task";
  second.reset();
  first.reset();  // returns: the thread has heard that it is to end
  for (const auto& stranger : strangers) stranger->expect_untouched();
}

}  // namespace
}  // namespace gpumem::client::test
