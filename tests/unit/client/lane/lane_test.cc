// Requests and their answers, of one thread and of many.
#include "client/lane/lane.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "tests/unit/client/lane/lane_fixture.h"

namespace gpumem::client::test {
namespace {

TEST(Lane, AnswersARequest) {
  FakeLane fake([](int socket) {
    greet(socket);
    const Said opened = receive_frame(socket);
    EXPECT_EQ(opened.as<lane::OpenSlice>().device, 2U);
    EXPECT_EQ(opened.as<lane::OpenSlice>().label.view(), "layers");
    send_frame(socket, lane::SliceOpened{3, 4096, 512}, opened.header.request);
    const Said ping = receive_frame(socket);
    EXPECT_TRUE(ping.is<lane::Ping>());
    send_frame(socket, failed(Code::kUnauthenticated, "the session has ended"), ping.header.request);
  });
  const auto lane = connected(fake);
  const auto opened = lane->call<lane::SliceOpened>(lane::OpenSlice{2, 0, lane::Text<128>::of("layers")});
  ASSERT_TRUE(opened) << to_string(opened.error());
  EXPECT_EQ(opened->slice, 3U);
  EXPECT_EQ(opened->granularity, 512U);
  const auto refused = lane->call(lane::Ping{});
  EXPECT_EQ(refused.error().code, Code::kUnauthenticated);
  EXPECT_EQ(refused.error().message, "the session has ended");
}

TEST(Lane, CarriesTheDeadlineOfARequestExceptOfWhatGivesBack) {
  FakeLane fake([](int socket) {
    greet(socket);
    const auto now =
        static_cast<std::uint64_t>(std::chrono::nanoseconds(Lane::Clock::now().time_since_epoch()).count());
    const Said ping = answered(socket);
    EXPECT_GT(ping.header.deadline, now);
    EXPECT_LE(ping.header.deadline, now + std::chrono::nanoseconds(2 * kTimeout).count());
    EXPECT_EQ(answered(socket).header.deadline, 0U) << "a return is of use however late it comes";
    EXPECT_EQ(answered(socket).header.deadline, 0U);
  });
  const auto lane = connected(fake);
  EXPECT_TRUE(lane->call(lane::Ping{}));
  EXPECT_TRUE(lane->call(lane::Return{1, 0, {}}));
  EXPECT_TRUE(lane->call(lane::CloseSlice{1}));
}

TEST(Lane, TellsWhatHasNoAnswer) {
  FakeLane fake([](int socket) {
    greet(socket);
    EXPECT_EQ(receive_frame(socket).as<lane::Accept>().grant, 5U);
    EXPECT_EQ(receive_frame(socket).as<lane::Spent>().device, 2U);
    EXPECT_TRUE(receive_frame(socket).is<lane::Goodbye>());
  });
  const auto lane = connected(fake);
  EXPECT_TRUE(lane->accept(5));
  EXPECT_TRUE(lane->spent(2));
  lane->goodbye();
}

// Closing a socket with something unread in it resets the connection.
TEST(Lane, SaysGoodbyeThoughAnswersAreUnread) {
  std::promise<void> sent;
  std::promise<void> closed;
  FakeLane fake([&](int socket) {
    greet(socket);
    for (std::uint64_t i = 1000; i < 1010; ++i) send_frame(socket, lane::Done{}, i);
    sent.set_value();
    closed.get_future().wait();
    EXPECT_TRUE(receive_frame(socket).is<lane::Goodbye>());
  });
  auto lane = connected(fake);
  sent.get_future().wait();
  lane->goodbye();
  lane.reset();
  closed.set_value();
}

// Every thread asks for another device and gets that one's answer, though the last request is answered first.
TEST(Lane, HandsAnswersInAnotherOrderToWhomTheyBelong) {
  constexpr std::uint64_t kThreads = 8;
  FakeLane fake([](int socket) {
    greet(socket);
    std::vector<Said> asked;
    while (asked.size() < kThreads) asked.push_back(receive_frame(socket));
    for (auto said = asked.rbegin(); said != asked.rend(); ++said) {
      const std::uint64_t device = said->as<lane::OpenSlice>().device;
      send_frame(socket, lane::SliceOpened{100 + device, 1, 1}, said->header.request);
    }
  });
  const auto lane = connected(fake);
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&lane, i] {
      const auto opened = lane->call<lane::SliceOpened>(lane::OpenSlice{i, 0, {}});
      ASSERT_TRUE(opened) << to_string(opened.error());
      EXPECT_EQ(opened->slice, 100 + i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Lane, ServesManyThreadsAtOnce) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 500;
  FakeLane fake([](int socket) {
    greet(socket);
    for (std::vector<Said> held;;) {  // answers what is there, the last first
      do {
        held.push_back(receive_frame(socket));
      } while (held.back().is<lane::OpenSlice>() && is_readable(socket));
      for (; !held.empty(); held.pop_back()) {
        if (!held.back().is<lane::OpenSlice>()) return;
        const std::uint64_t device = held.back().as<lane::OpenSlice>().device;
        send_frame(socket, lane::SliceOpened{device, 1, 1}, held.back().header.request);
      }
    }
  });
  const auto lane = connected(fake);
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&lane, i] {
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        const std::uint64_t device = i * kRounds + round;
        const auto opened = lane->call<lane::SliceOpened>(lane::OpenSlice{device, 0, {}});
        ASSERT_TRUE(opened) << to_string(opened.error());
        ASSERT_EQ(opened->slice, device);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  lane->goodbye();
}

TEST(Lane, IgnoresAnswersToWhatItHasNotAsked) {
  FakeLane fake([](int socket) {
    greet(socket);
    const Said ping = receive_frame(socket);
    send_frame(socket, lane::Done{}, ping.header.request + 1000);
    send_frame(socket, lane::Waiting{1}, ping.header.request + 1000);
    send_frame(socket, lane::Done{}, 0);
    send_frame(socket, lane::Done{}, ping.header.request);
  });
  EXPECT_TRUE(connected(fake)->call(lane::Ping{}));
}

TEST(Lane, ReleasesAReservationThatNobodyAwaits) {
  FakeLane fake([](int socket) {
    greet(socket);
    const Said ping = receive_frame(socket);
    send_frame(socket, lane::NameReserved{5, 0}, ping.header.request + 1000);
    send_frame(socket, lane::Done{}, ping.header.request);
    const Said released = receive_frame(socket);
    ASSERT_TRUE(released.is<lane::ReleaseReservation>());
    EXPECT_EQ(released.as<lane::ReleaseReservation>().reservation, 5U);
  });
  EXPECT_TRUE(connected(fake)->call(lane::Ping{}));
}

struct Malformed : testing::TestWithParam<int> {
  /// Something that is no answer to `request`, an OpenSlice.
  static std::string answer(std::uint64_t request) {
    const auto text = [](const auto& body, std::uint64_t number) {
      return std::string(lane::Outgoing(body, number).bytes());
    };
    std::string opened = text(lane::SliceOpened{1, 2, 3}, request);
    std::string refused = text(failed(Code::kNotFound, "no"), request);
    switch (GetParam()) {
      case 0: return "x";
      case 1: return std::string(lane::kMostBytes, 'x');
      case 2: return std::string(lane::kMostBytes + 1, 'x');
      case 3: return opened.substr(0, sizeof(lane::Header) - 1);
      case 4: return opened.substr(0, opened.size() - 1);
      case 5: return opened + "x";
      case 6: return text(lane::Done{}, request);
      case 7: return text(lane::Granted{}, request);
      case 8: return text(lane::Waiting{~std::uint64_t{0}}, request);
      case 9: return refused.substr(0, refused.size() - 1);
      case 10: return refused.replace(sizeof(lane::Header) + 8 + 1023, 1, "x");  // its text is not padded
      case 11: return opened.replace(4, 1, "\x7f");                              // of another version
      case 12: return opened.replace(6, 1, "\x01");                              // of another kind
      default: return opened.replace(6, 2, "\xff\xff");
    }
  }
};

TEST_P(Malformed, AnswerIsAnErrorAndTheNextCallWorks) {
  FakeLane fake([](int socket) {
    greet(socket);
    EXPECT_TRUE(send_packet(socket, answer(receive_frame(socket).header.request)));
    answered(socket);
  });
  const auto lane = connected(fake);
  const auto opened = lane->call<lane::SliceOpened>(lane::OpenSlice{});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kInternal) << to_string(opened.error());
  EXPECT_TRUE(lane->call(lane::Ping{}));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Malformed, testing::Range(0, 14));

}  // namespace
}  // namespace gpumem::client::test
