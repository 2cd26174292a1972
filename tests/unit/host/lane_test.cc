// The broker's end of a lane, against the other end of a socket pair.
#include "daemon/host/lanes/lane.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <set>
#include <utility>

#include "proto/lane/frames.h"
#include "tests/support/eventually.h"

namespace gpumem::host {
namespace {

constexpr ExtentId kStderr{STDERR_FILENO};

// Notes what the lane tells; welcomes whoever greets, or refuses.
struct Recorder final : LaneHandler {
  void readable(const std::shared_ptr<Lane>& lane) override {
    ++readable_calls;
    while (reads && lane->take_frame()) continue;
  }
  void in_turn(const std::shared_ptr<Lane>&, std::function<void()> work) override { work(); }
  void frame(const std::shared_ptr<Lane>& lane, std::string_view packet) override {
    frames.emplace_back(packet);
    const auto frame = lane::parse(packet);
    if (frame && frame->header.kind == lane::Kind::kGoodbye) return lane->note_goodbye();
    if (lane->session()) return;
    if (refusal) return lane->refuse(*refusal, frame->header.request);
    lane->welcome(SessionId{7}, "welcome", descriptors);
  }
  // Extents are numbered as their descriptors here.
  SentDescriptor descriptor(ExtentId extent, bool, ProcessWatch&) override {
    return {.is_held = !gone.contains(extent), .number = can_open ? static_cast<int>(extent.value) : -1};
  }
  void warn(const std::string& words) override { warning = words; }
  void closed(const std::shared_ptr<Lane>& lane, bool has_released) override {
    ++closures;
    released = has_released;
    may_live = lane->process_may_live();
    if (!lane->session()) lane->forget();
    if (closures == 1 && after_first_end) after_first_end();
  }
  void process_exited(const std::shared_ptr<Lane>&) override { ++exits; }

  std::set<ExtentId> gone;
  bool can_open = true;
  bool reads = true;
  int readable_calls = 0;
  std::optional<Error> refusal;
  std::function<void()> after_first_end;
  std::vector<int> descriptors;
  std::string warning;
  std::vector<std::string> frames;
  int closures = 0, exits = 0;
  bool released = false, may_live = false;
};

struct LaneTest : testing::Test {
  explicit LaneTest(std::size_t unread_descriptors = 1024) : unread(loop, unread_descriptors, disposal) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    client.reset(ends[1]);
    UniqueFd own(ends[0]);
    auto peer = identify_peer(own.get());
    lane = Lane::create(loop, {std::move(own), std::move(*peer)}, recorder, disposal, unread).value();
    lane->start();
  }
  ~LaneTest() override {
    lane->forget();
    loop.restart();
    loop.run();
  }

  // Lets the loop work until `condition` holds.
  template <class Condition>
  bool until(Condition condition) {
    return test::eventually([&] {
      if (condition()) return true;
      loop.restart();
      loop.run_one_for(std::chrono::milliseconds(20));
      return false;
    });
  }
  bool is_closed() {
    return until([&] { return recorder.closures == 1; });
  }
  void say(std::string_view frame) { EXPECT_TRUE(send_packet(client.get(), frame)); }
  void greet() {
    say(kHello);
    EXPECT_TRUE(until([&] { return lane->session() || recorder.closures != 0; }));
  }
  Result<Packet> receive() { return receive_packet(client.get(), lane::kMostBytes, lane::kMostDescriptors); }
  /// Any answer, that another has another number.
  static std::string answer(std::uint64_t number) {
    return std::string(lane::Outgoing(lane::Done{}, number).bytes());
  }

  const std::string kHello{lane::Outgoing(lane::Hello{}, 1).bytes()};
  const std::string kGoodbye{lane::Outgoing(lane::Goodbye{}).bytes()};
  SocketDisposal disposal{true};
  boost::asio::io_context loop;
  UnreadDescriptors unread;
  Recorder recorder;
  UniqueFd client;
  std::shared_ptr<Lane> lane;
};

TEST_F(LaneTest, HandsTheGreetingOverAndWelcomes) {
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  recorder.descriptors = {file.get()};
  greet();
  EXPECT_EQ(recorder.frames, std::vector{kHello});
  auto packet = receive();
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->bytes, "welcome");
  EXPECT_EQ(packet->descriptors.size(), 1U);
  EXPECT_EQ(lane->session(), SessionId{7});
  EXPECT_EQ(lane->peer().pid, ::getpid());
}

TEST_F(LaneTest, KnowsWhetherAFrameLiesInItsSocket) {
  greet();
  EXPECT_FALSE(lane->has_unread());
  say(kGoodbye);
  EXPECT_TRUE(lane->has_unread()) << "though the loop has not looked";
  EXPECT_TRUE(lane->take_frame());
  EXPECT_FALSE(lane->has_unread());
}

TEST_F(LaneTest, RefusesWithTheReasonAndCloses) {
  recorder.refusal = Error{Code::kPermissionDenied, "not you"};
  greet();
  const auto packet = receive();
  ASSERT_TRUE(packet);
  const auto frame = lane::parse(packet->bytes);
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->header.request, 1U) << "the Hello's";
  const auto refused = lane::body_of<lane::Failed>(*frame);
  ASSERT_TRUE(refused) << refused.error().message;
  EXPECT_EQ(refused->code, static_cast<std::uint64_t>(Code::kPermissionDenied));
  EXPECT_EQ(refused->message.view(), "not you");
  EXPECT_TRUE(receive()->bytes.empty()) << "closed";
  EXPECT_EQ(recorder.closures, 1);
}

TEST_F(LaneTest, NamesItsPeer) {
  EXPECT_NE(lane->who().find("pid " + std::to_string(::getpid())), std::string::npos) << lane->who();
  PeerProcess unknown;
  unknown.peer.uid = 12;
  unknown.peer.can_be_ended = false;
  const auto other =
      Lane::create(loop, {UniqueFd(::dup(client.get())), std::move(unknown)}, recorder, disposal, unread)
          .value();
  EXPECT_EQ(other->who(), "a process of another PID namespace (uid 12), which cannot be ended");
  EXPECT_EQ(other->signal(core::Signal::kTerminate).error().code, Code::kFailedPrecondition);
  other->forget();
  recorder.closures = 0;
}

TEST_F(LaneTest, TellsAGoodbyeWithTheEnd) {
  greet();
  EXPECT_TRUE(receive());
  say(kGoodbye);
  client.reset();
  EXPECT_TRUE(is_closed());
  EXPECT_TRUE(recorder.released);
}

TEST_F(LaneTest, TellsAGoodbyeOfAClientThatHadNotReadEverything) {
  greet();
  for (std::uint64_t i = 1; i <= 20; ++i) lane->send(answer(i));
  say(kGoodbye);
  client.reset();  // the kernel reports a reset first, then the goodbye
  EXPECT_TRUE(is_closed());
  EXPECT_TRUE(recorder.released);
}

TEST_F(LaneTest, TellsAGoodbyeOfAClientThatReadsNoAnswerAnyMore) {
  greet();
  EXPECT_EQ(::shutdown(client.get(), SHUT_RD), 0);
  lane->send(answer(1));
  EXPECT_EQ(recorder.closures, 0);
  say(kGoodbye);
  client.reset();
  EXPECT_TRUE(is_closed());
  EXPECT_TRUE(recorder.released);
}

TEST_F(LaneTest, TellsThatAClientThatLivesOnHasClosedItsEnd) {
  greet();
  client.reset();
  EXPECT_TRUE(is_closed());
  EXPECT_TRUE(recorder.released);
  EXPECT_TRUE(recorder.may_live) << "this process does";
  EXPECT_EQ(recorder.exits, 0);
}

TEST_F(LaneTest, TellsThatItWasCutBesideAClientThatLivesOn) {
  greet();
  lane->close("enough");
  EXPECT_FALSE(recorder.released);
  EXPECT_TRUE(recorder.may_live);
}

TEST_F(LaneTest, ClosesOnDescriptors) {
  EXPECT_TRUE(send_packet(client.get(), kHello, std::array{STDERR_FILENO}));
  EXPECT_TRUE(is_closed());
  EXPECT_TRUE(recorder.frames.empty());
}

std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                                std::filesystem::directory_iterator()));
}

TEST_F(LaneTest, KeepsMessagesButNoDescriptorsForAClientThatIsSlow) {
  greet();
  EXPECT_TRUE(receive());
  constexpr std::uint64_t kMessages = 1000;
  const std::size_t before = open_descriptors();
  for (std::uint64_t i = 1; i <= kMessages; ++i) lane->send(answer(i), {.ids = {kStderr}});
  EXPECT_EQ(open_descriptors(), before);
  for (std::uint64_t i = 1; i <= kMessages; ++i) {
    Result<Packet> packet = receive();
    EXPECT_TRUE(packet || until([&] { return (packet = receive()).has_value(); }));
    ASSERT_TRUE(packet);
    ASSERT_EQ(packet->bytes, answer(i));
    ASSERT_EQ(packet->descriptors.size(), 1U);
  }
  EXPECT_EQ(recorder.closures, 0);
}

TEST_F(LaneTest, MemoryThatIsReturnedBeforeItsAnswerIsSentIsAnsweredAsWithdrawn) {
  greet();
  EXPECT_TRUE(receive());
  const std::vector<ExtentId> many(100, kStderr);
  constexpr std::uint64_t kMessages = 30;
  for (std::uint64_t i = 1; i <= kMessages; ++i) lane->send(answer(i), {.ids = many});
  recorder.gone.insert(kStderr);
  Result<Packet> packet = Error{};
  do {
    EXPECT_TRUE(until([&] { return (packet = receive()).has_value(); }));
    ASSERT_TRUE(packet);
  } while (!packet->descriptors.empty());
  const auto frame = lane::parse(packet->bytes);
  ASSERT_TRUE(frame);
  EXPECT_EQ(lane::body_of<lane::Failed>(*frame)->code, static_cast<std::uint64_t>(Code::kCancelled));
  EXPECT_GT(frame->header.request, 1U);
  EXPECT_EQ(recorder.closures, 0);
}

TEST_F(LaneTest, AnAnswerWaitsWhileItsDescriptorsCannotBeOpened) {
  greet();
  ASSERT_TRUE(receive());
  recorder.can_open = false;
  lane->send(answer(1), {.ids = {kStderr}});
  lane->send(answer(2));
  loop.restart();
  loop.run_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(receive()) << "it would say that the memory is gone";
  recorder.can_open = true;
  for (std::uint64_t i = 1; i <= 2; ++i) {
    std::optional<Packet> packet;
    ASSERT_TRUE(until([&] {
      if (auto received = receive()) packet = std::move(*received);
      return packet.has_value();
    }));
    EXPECT_EQ(packet->bytes, answer(i));
    EXPECT_EQ(packet->descriptors.size(), i == 1 ? 1U : 0U);
  }
}

TEST_F(LaneTest, FrameCouldBeReadSinceItsSocketWasReadable) {
  greet();
  EXPECT_TRUE(receive());
  recorder.reads = false;
  say(kGoodbye);
  EXPECT_TRUE(until([&] { return recorder.readable_calls == 2; }));
  const auto since = lane->readable_since();
  EXPECT_GT(since, core::TimePoint{});
  recorder.reads = true;
  const auto later = std::chrono::steady_clock::now();
  EXPECT_LE(since, later);
  EXPECT_TRUE(lane->take_frame());
  EXPECT_GE(lane->readable_since(), later) << "the next one could be read once this one was";
}

TEST_F(LaneTest, SendsNoMoreDescriptorsThanItsUserMayLeaveUnread) {
  greet();
  EXPECT_TRUE(receive());
  const std::vector<ExtentId> descriptors(100, kStderr);
  constexpr std::uint64_t kMessages = 30;
  for (std::uint64_t i = 1; i <= kMessages; ++i) lane->send(answer(i), {.ids = descriptors});
  EXPECT_FALSE(unread.has_room(lane->peer().uid, -1, 100)) << "10 of the messages are in the socket";
  EXPECT_TRUE(unread.has_room(lane->peer().uid + 1, -1, 100));
  for (std::uint64_t i = 1; i <= kMessages; ++i) {
    Result<Packet> packet = receive();
    EXPECT_TRUE(packet || until([&] { return (packet = receive()).has_value(); })) << i;
    ASSERT_TRUE(packet);
    ASSERT_EQ(packet->descriptors.size(), 100U);
    ASSERT_EQ(packet->bytes, answer(i));
  }
  EXPECT_EQ(recorder.closures, 0);
}

struct LaneOfFewDescriptors : LaneTest {
  LaneOfFewDescriptors() : LaneTest(2) {}
};

TEST_F(LaneOfFewDescriptors, LeavesUnreadDescriptorsCountedWhenItIsClosed) {
  const std::vector<int> files(3, STDERR_FILENO);
  recorder.descriptors = files;
  greet();
  lane->close("enough");
  EXPECT_TRUE(unread.is_full_of_closed(lane->peer().uid)) << "the share is 2, and 3 are on their way";
  EXPECT_TRUE(receive()) << "what was sent can be read";
  EXPECT_TRUE(until([&] { return !unread.is_full_of_closed(lane->peer().uid); }));
}

TEST_F(LaneTest, ClosesOnAClientThatNeverReads) {
  greet();
  for (std::uint64_t i = 1; i <= 10'000 && recorder.closures == 0; ++i) lane->send(answer(i));
  EXPECT_EQ(recorder.closures, 1);
  lane->send(answer(1));  // does nothing
}

TEST_F(LaneTest, TellsItsEndOnce) {
  greet();
  lane->close("enough");
  lane->close("again");
  client.reset();
  EXPECT_TRUE(is_closed());
  lane->forget();
  EXPECT_EQ(recorder.closures, 1);
}

// A lane of a child, which greets and then runs `body`. This process has the client's end, too.
struct LaneOfAChild {
  explicit LaneOfAChild(const std::function<void()>& body) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    client.reset(ends[1]);
    EXPECT_TRUE(send_packet(client.get(), lane::Outgoing(lane::Hello{}, 1).bytes()));
    pid = ::fork();
    if (pid == 0) {
      body();
      ::_exit(0);
    }
    PeerProcess peer;
    peer.peer.pid = pid;
    peer.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    lane = Lane::create(loop, {UniqueFd(ends[0]), std::move(peer)}, recorder, disposal, unread).value();
    lane->start();
    run_until([&] { return static_cast<bool>(lane->session()); });
  }
  ~LaneOfAChild() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    lane->forget();
  }
  template <class Condition>
  void run_until(Condition condition) {
    while (!condition() && loop.run_one_for(test::kPatience) > 0) {
    }
  }

  SocketDisposal disposal{true};
  boost::asio::io_context loop;
  UnreadDescriptors unread{loop, 1024, disposal};
  Recorder recorder;
  UniqueFd client;
  pid_t pid = -1;
  std::shared_ptr<Lane> lane;
};

TEST(LaneOfAChildTest, TellsThatTheProcessIsGoneThoughAnotherHasItsSocket) {
  LaneOfAChild child([] { ::pause(); });
  EXPECT_TRUE(child.lane->process_may_live());
  EXPECT_TRUE(child.lane->signal(core::Signal::kKill));
  child.run_until([&] { return child.recorder.exits != 0; });
  EXPECT_EQ(child.recorder.exits, 1);
  EXPECT_EQ(child.recorder.closures, 1);
  EXPECT_FALSE(child.recorder.may_live);
}

TEST(LaneOfAChildTest, TellsAProcessThatBecomesAnotherProgramFromOneThatEnds) {
  for (const bool becomes_another : {true, false}) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd waits(ends[0]);
    UniqueFd goes_on(ends[1]);
    LaneOfAChild child([&] {
      goes_on.reset();
      char nothing = 0;
      if (::read(waits.get(), &nothing, 1) == 0 && becomes_another)
        ::execl("/bin/sleep", "sleep", "100", nullptr);
    });
    child.client.reset();
    goes_on.reset();
    child.run_until([&] { return child.recorder.closures != 0; });
    EXPECT_EQ(child.recorder.released, becomes_another);
  }
}

TEST_F(LaneTest, HandsFramesOverAsTheyCome) {
  const std::string ping(lane::Outgoing(lane::Ping{}, 2).bytes());
  greet();
  say(ping);
  EXPECT_TRUE(until([&] { return recorder.frames.size() == 2; }));
  EXPECT_EQ(recorder.frames, (std::vector{kHello, ping}));
}

TEST_F(LaneTest, HandsOneFrameOverInATurn) {
  greet();
  recorder.reads = false;
  for (std::uint64_t i = 2; i <= 4; ++i) say(lane::Outgoing(lane::Ping{}, i).bytes());
  EXPECT_TRUE(until([&] { return recorder.readable_calls == 2; }));
  EXPECT_EQ(recorder.frames.size(), 1U) << "it waits for its turn";
  for (std::size_t i = 2; i <= 4; ++i) {
    EXPECT_TRUE(lane->take_frame());
    EXPECT_EQ(recorder.frames.size(), i);
  }
  EXPECT_FALSE(lane->take_frame()) << "there is none";
}

TEST_F(LaneTest, RefusesAClientThatHasSaidNothingByAFrame) {
  lane->refuse({Code::kResourceExhausted, "full"});
  const auto frame = receive();
  ASSERT_TRUE(frame);
  const auto refused = lane::body_of<lane::Failed>(lane::parse(frame->bytes).value());
  ASSERT_TRUE(refused) << refused.error().message;
  EXPECT_EQ(refused->message.view(), "full");
}

// The loop learns of the lane's end and of its process's end in one round. A lane that is made in between
// takes the places of both descriptors in the loop.
// The kernel refuses to watch a descriptor twice as it does where there is no room for one more.
TEST(UnwatchedLane, IsAnErrorAndClosed) {
  SocketDisposal disposal{true};
  boost::asio::io_context loop;
  UnreadDescriptors unread(loop, 1024, disposal);
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  const UniqueFd client(ends[1]);
  boost::asio::posix::stream_descriptor watcher(loop, ends[0]);
  PeerProcess peer;
  peer.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  Recorder recorder;
  const auto lane = Lane::create(loop, {UniqueFd(ends[0]), std::move(peer)}, recorder, disposal, unread);
  ASSERT_FALSE(lane);
  EXPECT_EQ(lane.error().code, Code::kResourceExhausted);
  EXPECT_NE(lane.error().message.find("cannot watch the connection"), std::string::npos);
  watcher.release();
  EXPECT_TRUE(test::eventually([&] {
    char byte = 0;
    return ::recv(client.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }));
  loop.poll();
  EXPECT_EQ(recorder.closures, 0) << "nobody has heard of it";
}

TEST(LaneReplacementTest, AnEndedProcessEndsNoLaneThatIsMadeInTheSameRound) {
  SocketDisposal disposal{true};
  boost::asio::io_context loop;
  UnreadDescriptors unread(loop, 1024, disposal);
  const auto pair = [] {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
  };
  Recorder recorder;
  auto [own, client] = pair();
  auto [next_own, next_client] = pair();
  std::shared_ptr<Lane> next;
  recorder.after_first_end = [&, &next_own = next_own] {
    auto peer = identify_peer(next_own.get());
    next = Lane::create(loop, {std::move(next_own), std::move(*peer)}, recorder, disposal, unread).value();
    next->start();
  };

  const pid_t child = ::fork();  // holds the other end of the first lane
  if (child == 0) ::pause();
  client.reset();
  PeerProcess ending;
  ending.peer.pid = child;
  ending.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  Lane::create(loop, {std::move(own), std::move(ending)}, recorder, disposal, unread).value()->start();
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);

  EXPECT_TRUE(test::eventually([&] {
    loop.poll();
    loop.restart();
    return next != nullptr;
  }));
  loop.poll();
  EXPECT_EQ(recorder.closures, 1);
  if (next) next->forget();
  loop.restart();
  loop.poll();
}

}  // namespace
}  // namespace gpumem::host
