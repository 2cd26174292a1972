// A broker that does not answer: what a call costs, what the next ones cost, and what comes late.
#include <future>
#include <thread>

#include "client/connection_attempt.h"
#include "tests/support/eventually.h"
#include "tests/unit/client/lane_fixture.h"

namespace gpumem::client::test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShort(100);

Result<void, GrowError> grow(Lane& lane) {
  return lane.grow(growth(), {Lane::Clock::now() + lane.timeout()}, [](const GrantPart&) {});
}

/// Calls until the broker is heard again.
bool is_heard_again(Lane& lane) {
  for (const auto end = Lane::Clock::now() + kTimeout; Lane::Clock::now() < end; std::this_thread::yield()) {
    if (lane.call(lane::Ping{})) return true;
  }
  return false;
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
  const auto refused = grow(*lane);
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
  EXPECT_EQ(grow(*lane).error().code, Code::kUnavailable);
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
      for (int round = 0; round < 100; ++round) EXPECT_EQ(grow(*lane).error().code, Code::kUnavailable);
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
  ConnectionAttempt attempt({fake.folder(), "test", kShort});
  const auto before = Lane::Clock::now();
  for (int i = 0; i < 500; ++i) {
    const auto refused = attempt.open();
    ASSERT_FALSE(refused);
    ASSERT_EQ(refused.error().code, Code::kUnavailable);
    ASSERT_NE(refused.error().message.find("does not answer"), std::string::npos) << refused.error().message;
  }
  EXPECT_LT(Lane::Clock::now() - before, 100 * kShort) << "500 timeouts would take longer";
  wake();
  std::shared_ptr<Connection> connection;
  EXPECT_TRUE(gpumem::test::eventually([&] {
    auto opened = attempt.open();
    if (opened) connection = *opened;
    return opened.has_value();
  }));
  ASSERT_NE(connection, nullptr);
  EXPECT_TRUE(is_heard_again(connection->lane()));
}

TEST_F(Unavailable, BrokerThatEndsWithoutAnAnswerIsFollowedByTheNext) {
  FakeLane fake([&](int) { sleep(); },
                [](int socket) {
                  greet(socket);
                  answer_all(socket);
                });
  ConnectionAttempt attempt({fake.folder(), "test", kShort});
  EXPECT_EQ(attempt.open().error().code, Code::kUnavailable);
  wake();
  EXPECT_TRUE(gpumem::test::eventually([&] { return attempt.open().has_value(); }));
}

TEST_F(Unavailable, BrokerThatTakesNoConnectionsIsWaitedForOnce) {
  const TemporaryFolder folder;
  const std::filesystem::path socket = folder.path() / "lane.sock";
  const UniqueFd listener = listen_at(socket);
  std::vector<OwnFd> waiting;
  for (auto one = connect_lane(socket, milliseconds(1)); one; one = connect_lane(socket, milliseconds(1)))
    waiting.push_back(std::move(*one));
  ConnectionAttempt attempt({folder.path().string(), "test", kShort});
  const auto before = Lane::Clock::now();
  for (int i = 0; i < 500; ++i) EXPECT_EQ(attempt.open().error().code, Code::kUnavailable);
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
  EXPECT_EQ(grow(*lane).error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace gpumem::client::test
