// A broker that does not answer: what a call costs, what the next ones cost, and what comes late.
#include <sys/socket.h>

#include <cstdlib>
#include <future>
#include <thread>

#include "client/lane/silent_brokers.h"
#include "client/session/connection.h"
#include "cuda/driver.h"
#include "gpumem.h"
#include "tests/support/eventually.h"
#include "tests/unit/client/fake_broker.h"
#include "tests/unit/client/lane/lane_fixture.h"

namespace gpumem::client::test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShort(100);

/// Connections to `socket`, until there is no room for more.
std::vector<OwnFd> fill_queue(const std::filesystem::path& socket) {
  std::vector<OwnFd> waiting;
  for (auto one = connect_lane(socket, milliseconds(1)); one; one = connect_lane(socket, milliseconds(1)))
    waiting.push_back(std::move(*one));
  return waiting;
}
Result<void, GrowError> grow_some(Lane& lane) {
  return lane.grow(growth(), {Lane::Clock::now() + lane.timeout()}, [](const GrantPart&) {});
}

/// Calls until the broker is heard again.
bool is_heard_again(Lane& lane) {
  for (const auto end = Lane::Clock::now() + kTimeout; Lane::Clock::now() < end; std::this_thread::yield()) {
    if (lane.call(lane::Ping{})) return true;
  }
  return false;
}

/// Connects to the broker in `folder`, time and again.
class Connecting {
 public:
  explicit Connecting(std::string folder) : folder_(std::move(folder)) {}
  Result<GreetedLane> once(const std::string& label = "test", milliseconds timeout = kShort) {
    return brokers_.connect({folder_, label, timeout}, 0, Lane::deadline_in(timeout));
  }

 private:
  const std::string folder_;
  SilentBrokers brokers_;
};

/// Receives the Hello and answers with a good Welcome.
lane::Hello receive_hello(int socket) {
  const Said hello = receive_frame(socket);
  send_welcome(socket, hello.header.request, welcome());
  return hello.as<lane::Hello>();
}

/// A broker that reads nothing between the greeting and wake().
struct Unavailable : testing::Test {
  void wake() { awake_.set_value(); }
  void sleep() { awake_.get_future().wait(); }

 private:
  std::promise<void> awake_;
};

TEST_F(Unavailable, BrokerCostsACallItsTimeoutAndTheNextOnesNothing) {
  FakeLane fake([&](int socket) {
    greet(socket);
    sleep();
    answer_all(socket);
  });
  const auto lane = connected(fake, kShort);
  const auto before = Lane::Clock::now();
  const auto first = lane->call(lane::Ping{});
  const auto between = Lane::Clock::now();
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code, Code::kUnavailable);
  EXPECT_NE(first.error().message.find("does not answer"), std::string::npos) << first.error().message;
  EXPECT_NE(first.error().message.find("stays usable (systemctl status gpumemd)"), std::string::npos);
  EXPECT_GE(between - before, kShort);
  EXPECT_LT(between - before, 100 * kShort);
  for (int i = 0; i < 500; ++i) {
    const auto next = lane->call(lane::Ping{});
    ASSERT_FALSE(next);
    EXPECT_EQ(next.error().message, first.error().message);
  }
  EXPECT_LT(Lane::Clock::now() - between, 100 * kShort) << "500 timeouts would take longer";
  wake();
  EXPECT_TRUE(is_heard_again(*lane));
  EXPECT_TRUE(lane->call(lane::Ping{}));
}

TEST_F(Unavailable, BrokerIsAskedWithoutADeadlineWhetherItLives) {
  FakeLane fake([&](int socket) {
    greet(socket);
    sleep();
    const Said asked = receive_frame(socket);
    EXPECT_TRUE(asked.is<lane::OpenSlice>());
    EXPECT_NE(asked.header.deadline, 0U);  // too late: it does not answer that one
    const Said probe = answered(socket);
    EXPECT_TRUE(probe.is<lane::Ping>());
    EXPECT_EQ(probe.header.deadline, 0U);
    answer_all(socket);
  });
  const auto lane = connected(fake, kShort);
  EXPECT_EQ(lane->call<lane::SliceOpened>(lane::OpenSlice{}).error().code, Code::kUnavailable);
  wake();
  EXPECT_TRUE(is_heard_again(*lane));
}

TEST_F(Unavailable, GrowthIsNoLackOfMemoryAndIsWithdrawn) {
  std::promise<void> withdrawn;
  FakeLane fake([&](int socket) {
    greet(socket);
    sleep();
    const Said asked = receive_frame(socket);
    EXPECT_TRUE(receive_frame(socket).is<lane::Ping>());
    EXPECT_EQ(receive_frame(socket).as<lane::Cancel>().growth, asked.header.request);
    withdrawn.set_value();
  });
  const auto lane = connected(fake, kShort);
  const auto refused = grow_some(*lane);
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_FALSE(refused.error().denial);
  wake();
  withdrawn.get_future().wait();
}

TEST_F(Unavailable, LateGrantIsGivenBack) {
  Pinned late;
  FakeLane fake([&](int socket) {
    greet(socket);
    sleep();
    const Said asked = receive_frame(socket);
    lane::Granted part = part_of(9, {10, 11, 20});
    part.leases[2].slice = 2;
    const int same = late.descriptor();
    send_frame(socket, part, asked.header.request, {same, same, same});
    std::vector<lane::Return> back;
    while (back.size() < 2) {
      const Said said = answered(socket);
      if (said.is<lane::Return>()) back.push_back(said.as<lane::Return>());
      ASSERT_NE(said.header.kind, lane::Kind{});
    }
    EXPECT_EQ(back[0].slice, 1U);
    EXPECT_EQ(back[0].count, 2U);
    EXPECT_EQ(back[0].leases[1], 11U);
    EXPECT_EQ(back[1].slice, 2U);
    EXPECT_EQ(back[1].leases[0], 20U);
    answer_all(socket);
  });
  const auto lane = connected(fake, kShort);
  EXPECT_EQ(grow_some(*lane).error().code, Code::kUnavailable);
  wake();
  EXPECT_TRUE(is_heard_again(*lane));
  EXPECT_TRUE(late.is_let_go());
  lane->goodbye();
}

TEST_F(Unavailable, BrokerIsToldLaterWhatItMustKnow) {
  FakeLane fake([&](int socket) {
    greet(socket);
    sleep();
    EXPECT_TRUE(answered(socket).is<lane::Ping>());
    EXPECT_TRUE(answered(socket).is<lane::Ping>()) << "whether it lives";
    Said said = answered(socket);
    while (said.is<lane::Ping>()) said = answered(socket);
    EXPECT_EQ(said.as<lane::Return>().slice, 4U);
    EXPECT_EQ(answered(socket).as<lane::CloseSlice>().slice, 4U);
    answer_all(socket);
  });
  const auto lane = connected(fake, kShort);
  EXPECT_FALSE(lane->call(lane::Ping{}));
  lane->tell_later(lane::Return{4, 0, {}});
  lane->tell_later(lane::CloseSlice{4});
  wake();
  EXPECT_TRUE(is_heard_again(*lane));
  lane->goodbye();
}

// The newest declaration of a process counts; a call that is made meanwhile does not overtake it.
TEST_F(Unavailable, BrokerIsToldOfWhatIsDeclaredInOrder) {
  constexpr std::uint64_t kLast = 20'000;
  std::uint64_t last = 0;
  FakeLane fake([&](int socket) {
    greet(socket);
    sleep();
    for (Said said = receive_frame(socket); said.header.kind != lane::Kind{}; said = receive_frame(socket)) {
      if (said.is<lane::Charge>()) {
        EXPECT_GT(said.as<lane::Charge>().bytes, last);
        last = said.as<lane::Charge>().bytes;
      }
      if (!said.is<lane::Goodbye>()) send_frame(socket, lane::Done{}, said.header.request);
    }
  });
  const auto lane = connected(fake, milliseconds(5'000));
  for (std::uint64_t i = 1; i < kLast; ++i) {
    lane->tell_later(lane::Charge{0, i, 0});
    if (i % 10 == 0) lane->tell_later(lane::CloseSlice{i});  // which takes room
  }
  wake();
  EXPECT_TRUE(lane->call(lane::Charge{0, kLast, 0}));
  EXPECT_EQ(last, kLast);
  lane->goodbye();
}

// A program that does nothing afterwards has told it all the same.
TEST_F(Unavailable, BrokerIsToldLaterThoughNobodyCallsAgain) {
  std::promise<void> told;
  FakeLane fake([&](int socket) {
    greet(socket);
    sleep();
    while (receive_frame(socket).is<lane::Ping>()) {
    }
    told.set_value();
    answer_all(socket);
  });
  const auto lane = connected(fake, kShort);
  EXPECT_FALSE(lane->call(lane::Ping{}));
  lane->tell_later(lane::Charge{0, 7, 0});
  wake();
  EXPECT_EQ(told.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  lane->goodbye();
}

// The broker answers one thread and not the other.
TEST_F(Unavailable, AnswerIsNoReasonToGiveTheOtherCallsUp) {
  FakeLane fake([&](int socket) {
    greet(socket);
    for (Said said = receive_frame(socket); said.header.kind != lane::Kind{}; said = receive_frame(socket))
      if (said.is<lane::Ping>()) send_frame(socket, lane::Done{}, said.header.request);
  });
  const auto lane = connected(fake, milliseconds(500));
  auto unanswered = std::async(std::launch::async, [&] { return lane->call(lane::Charge{}); });
  while (unanswered.wait_for(milliseconds(0)) != std::future_status::ready)
    EXPECT_TRUE(lane->call(lane::Ping{}));
  EXPECT_EQ(unanswered.get().error().code, Code::kUnavailable);
  EXPECT_TRUE(lane->call(lane::Ping{}));
}

TEST_F(Unavailable, BrokerThatReadsNothingHoldsNoThreadUp) {
  constexpr milliseconds kLong(1'000);
  constexpr int kThreads = 16;
  FakeLane fake([&](int socket) {
    greet(socket);
    sleep();
  });
  const auto lane = connected(fake, kLong);
  const auto before = Lane::Clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) EXPECT_EQ(grow_some(*lane).error().code, Code::kUnavailable);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(Lane::Clock::now() - before, kThreads * kLong / 2) << "one after another they would take longer";
  wake();
}

TEST_F(Unavailable, BrokerThatIsConnectedToIsWaitedForOnceAndMayAnswerLate) {
  FakeLane fake([&](int socket) {
    sleep();
    greet(socket);
    answer_all(socket);
  });
  Connecting connecting(fake.folder());
  const auto before = Lane::Clock::now();
  for (int i = 0; i < 500; ++i) {
    const auto refused = connecting.once();
    ASSERT_FALSE(refused);
    ASSERT_EQ(refused.error().code, Code::kUnavailable);
    ASSERT_NE(refused.error().message.find("does not answer"), std::string::npos) << refused.error().message;
  }
  EXPECT_LT(Lane::Clock::now() - before, 100 * kShort) << "500 timeouts would take longer";
  wake();
  std::unique_ptr<Lane> lane;
  EXPECT_TRUE(gpumem::test::eventually([&] {
    auto greeted = connecting.once();
    if (greeted) lane = std::move(greeted->lane);
    return greeted.has_value();
  }));
  ASSERT_NE(lane, nullptr);
  EXPECT_TRUE(is_heard_again(*lane));
}

TEST_F(Unavailable, BrokerThatHasRefusedAndThenIsSilentIsQuoted) {
  FakeLane fake(
      [](int socket) {
        send_frame(socket, failed(Code::kUnavailable, "its disk is full"),
                   receive_frame(socket).header.request);
      },
      [&](int) { sleep(); });
  const auto refused = Connecting(fake.folder()).once();
  EXPECT_EQ(refused.error().message, "the broker refuses this process: its disk is full");
  wake();
}

TEST_F(Unavailable, LateSessionIsLeftByWhoConnectsWithOtherOptions) {
  std::promise<void> left;
  FakeLane fake(
      [&](int socket) {
        sleep();
        greet(socket);
        Said said = answered(socket);
        while (said.is<lane::Ping>()) said = answered(socket);
        EXPECT_TRUE(said.is<lane::Goodbye>());
        left.set_value();
      },
      [](int socket) {
        EXPECT_EQ(receive_hello(socket).label.view(), "other");
        answer_all(socket);
      });
  Connecting connecting(fake.folder());
  EXPECT_EQ(connecting.once().error().code, Code::kUnavailable);
  wake();
  std::optional<Result<GreetedLane>> other;
  EXPECT_TRUE(gpumem::test::eventually([&] {
    other.emplace(connecting.once("other", kTimeout));
    return other->has_value();
  }));
  left.get_future().wait();
  EXPECT_TRUE((*other)->lane->call(lane::Ping{}));
}

TEST_F(Unavailable, BrokerCostsTheSessionsOfAProcessOneTimeout) {
  FakeLane fake([&](int socket) {
    sleep();
    greet(socket);
    answer_all(socket);
  });
  const SessionOptions options{fake.folder(), "test", kShort};
  const auto before = Lane::Clock::now();
  for (int i = 0; i < 500; ++i) EXPECT_EQ(Connection::open(options).error().code, Code::kUnavailable);
  EXPECT_LT(Lane::Clock::now() - before, 100 * kShort) << "500 timeouts would take longer";
  wake();
  EXPECT_TRUE(gpumem::test::eventually([&] { return Connection::open(options).has_value(); }));
}

TEST_F(Unavailable, BrokerThatEndsWithoutAnAnswerIsFollowedByTheNext) {
  FakeLane fake([&](int) { sleep(); },
                [](int socket) {
                  greet(socket);
                  answer_all(socket);
                });
  Connecting connecting(fake.folder());
  EXPECT_EQ(connecting.once().error().code, Code::kUnavailable);
  wake();
  EXPECT_TRUE(gpumem::test::eventually([&] { return connecting.once().has_value(); }));
}

TEST_F(Unavailable, BrokerThatEndsBeforeItAnswersIsFollowedWithinTheCall) {
  FakeLane fake([](int socket) { receive_frame(socket); },
                [](int socket) {
                  const Said hello = receive_frame(socket);
                  send_frame(socket, failed(Code::kUnavailable, "the broker is stopping"),
                             hello.header.request);
                },
                [](int socket) {
                  greet(socket);
                  answer_all(socket);
                });
  EXPECT_TRUE(Connecting(fake.folder()).once("test", kTimeout));
}

TEST_F(Unavailable, BrokerThatTakesNoConnectionsIsWaitedForOnce) {
  const TemporaryFolder folder;
  const std::filesystem::path socket = folder.path() / "lane.sock";
  const UniqueFd listener = listen_at(socket);
  std::vector<OwnFd> waiting = fill_queue(socket);
  Connecting connecting(folder.path().string());
  const auto before = Lane::Clock::now();
  for (int i = 0; i < 500; ++i) EXPECT_EQ(connecting.once().error().code, Code::kUnavailable);
  EXPECT_LT(Lane::Clock::now() - before, 100 * kShort) << "500 timeouts would take longer";
}

TEST_F(Unavailable, BrokerThatHasGoneFailsEveryCall) {
  FakeLane fake([&](int socket) {
    greet(socket);
    for (int i = 0; i < 4; ++i) receive_frame(socket);
  });
  const auto lane = connected(fake);
  std::vector<std::future<Result<lane::Done>>> calls;
  for (int i = 0; i < 4; ++i)
    calls.push_back(std::async(std::launch::async, [&] { return lane->call(lane::Ping{}); }));
  for (auto& call : calls) {
    const auto answer = call.get();
    EXPECT_EQ(answer.error().code, Code::kUnavailable);
    EXPECT_NE(answer.error().message.find("stays usable"), std::string::npos);
  }
  EXPECT_EQ(lane->call(lane::Ping{}).error().code, Code::kUnavailable);
  EXPECT_EQ(grow_some(*lane).error().code, Code::kUnavailable);
}

// ---- One deadline for all messages of a call ----

// The broker answers the first message of a call late, and the next one not at all. A client with a deadline
// for each message has not given up yet when this broker then answers that one, too.
constexpr milliseconds kLong(2'000);

Lane::Clock::time_point deadline_of(const Said& said) {
  return Lane::Clock::time_point(std::chrono::nanoseconds(said.header.deadline));
}

/// Whether the client has said something, or left, by `time`.
bool says_something_by(int socket, Lane::Clock::time_point time) {
  pollfd polled{socket, POLLIN, 0};
  const auto left = std::chrono::ceil<milliseconds>(time - Lane::Clock::now());
  return ::poll(&polled, 1, std::max(0, static_cast<int>(left.count()))) == 1;
}

TEST_F(Unavailable, GrantOfSeveralFramesHasOneTimeout) {
  FakeLane fake([](int socket) {
    greet(socket);
    const Said asked = receive_frame(socket);
    EXPECT_FALSE(says_something_by(socket, deadline_of(asked) - kLong / 4));
    send_frame(socket, part_of(9, {10}, 2), asked.header.request);
    if (says_something_by(socket, deadline_of(asked) + kLong / 2)) return;
    send_frame(socket, part_of(9, {11}, 1), asked.header.request);
    send_frame(socket, part_of(9, {12}, 0), asked.header.request);
    receive_frame(socket);
  });
  const auto lane = connected(fake, kLong);
  EXPECT_EQ(grow_some(*lane).error().code, Code::kUnavailable);
}

TEST_F(Unavailable, GrantThatWasWaitedForHasATimeoutOfItsOwn) {
  FakeLane fake([](int socket) {
    greet(socket);
    const Said asked = receive_frame(socket);
    send_frame(socket, lane::Waiting{}, asked.header.request);
    while (Lane::Clock::now() < deadline_of(asked) + kShort) {
      if (!says_something_by(socket, deadline_of(asked) + kShort)) continue;
      EXPECT_TRUE(answered(socket).is<lane::Ping>());
    }
    send_frame(socket, part_of(9, {10}, 1), asked.header.request);
    send_frame(socket, part_of(9, {11}, 0), asked.header.request);
    answer_all(socket);
  });
  const auto lane = connected(fake, kLong);
  EXPECT_TRUE(grow_some(*lane));
}

// The queue of connections is full, and there is room late.
TEST_F(Unavailable, ConnectingAndTheGreetingHaveOneTimeout) {
  const TemporaryFolder folder;
  const std::filesystem::path socket = folder.path() / "lane.sock";
  const UniqueFd listener = listen_at(socket);
  std::vector<OwnFd> waiting = fill_queue(socket);
  const auto before = Lane::Clock::now();
  auto deadline = std::async(std::launch::async, [&] {
    EXPECT_FALSE(says_something_by(-1, before + kLong / 2));
    waiting.clear();
    for (;;) {
      const UniqueFd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      const Said said = receive_frame(peer.get());
      if (said.is<lane::Hello>()) return deadline_of(said) - before;
    }
  });
  const auto opened = Connection::open({folder.path().string(), "test", kLong});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kUnavailable);
  EXPECT_LT(deadline.get(), kLong + kLong / 2) << "the greeting has a timeout of its own";
}

/// A Welcome that lends the first device of the simulated machine.
lane::Welcome welcome_to_a_device() {
  const auto driver = cuda::Driver::open(simulated_machine());
  EXPECT_TRUE(driver) << to_string(driver.error());
  lane::Welcome body = welcome({to_string((*driver)->devices()[0].uuid)});
  body.driver_folder = decltype(body.driver_folder)::of(simulated_machine().string());
  return body;
}

void allocate_first() {
  const lane::Welcome greeting = welcome_to_a_device();
  std::promise<void> done;
  FakeLane fake([&](int socket) {
    const Said hello = receive_frame(socket);
    EXPECT_FALSE(says_something_by(socket, deadline_of(hello) - kLong / 4));
    send_welcome(socket, hello.header.request, greeting);
    const Said opening = receive_frame(socket);
    EXPECT_TRUE(opening.is<lane::OpenSlice>());
    send_frame(socket, lane::SliceOpened{1, 64 << 20, 2 << 20}, opening.header.request);
    const Said growth = receive_frame(socket);
    EXPECT_TRUE(growth.is<lane::Grow>());
    EXPECT_LT(deadline_of(growth), deadline_of(hello) + kLong / 2);
    EXPECT_TRUE(says_something_by(socket, deadline_of(hello) + kLong / 2));
    done.get_future().wait();
  });
  gpumem_session_options options = GPUMEM_SESSION_OPTIONS_INIT;
  const std::string folder = fake.folder();
  options.runtime_folder = folder.c_str();
  options.timeout_ms = kLong.count();
  ASSERT_EQ(gpumem_configure_default(&options, nullptr), GPUMEM_OK) << gpumem_last_error();
  EXPECT_THROW((void)gpumem_torch_alloc(1 << 20, 0, nullptr), std::runtime_error);
  EXPECT_NE(std::string(gpumem_last_error()).find("does not answer"), std::string::npos)
      << gpumem_last_error();
  done.set_value();
}

// In a process of its own, which keeps its default session.
TEST_F(Unavailable, FirstAllocationOfAProcessHasOneTimeoutForAllMessages) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto allocate_and_exit = [] {
    allocate_first();
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(allocate_and_exit(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gpumem::client::test
