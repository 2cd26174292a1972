// Growths: grants in one frame or several, waiting, calling off, and grants that are no good.
#include <future>

#include "tests/unit/client/lane/lane_fixture.h"

namespace gpumem::client::test {
namespace {

using std::chrono::milliseconds;

std::uint64_t monotonic(milliseconds from_now) {
  const auto time = Lane::Clock::now() + from_now;
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(time.time_since_epoch()).count());
}

/// The leases that `lane` is granted, with descriptors, or why it is not.
struct Outcome {
  std::vector<std::uint64_t> leases;
  std::size_t descriptors = 0;
  Result<void, GrowError> result;
};
Outcome grow(Lane& lane, std::stop_token stop = {}) {
  Outcome outcome;
  outcome.result =
      lane.grow(growth(), {Lane::Clock::now() + lane.timeout(), std::move(stop)}, [&](GrantPart part) {
        for (std::size_t i = 0; i < part.granted.count; ++i)
          outcome.leases.push_back(part.granted.leases[i].lease);
        outcome.descriptors += part.descriptors.size();
      });
  return outcome;
}

TEST(LaneGrant, BringsLeasesAndTheirDescriptors) {
  FakeLane fake([](int socket) {
    greet(socket);
    const Said asked = receive_frame(socket);
    EXPECT_EQ(asked.as<lane::Grow>().parts[0].bytes, 1U << 20);
    const UniqueFd file = client_page_file();
    send_frame(socket, part_of(9, {10, 11}), asked.header.request, {file.get(), file.get()});
  });
  const Outcome outcome = grow(*connected(fake));
  ASSERT_TRUE(outcome.result) << to_string(outcome.result.error());
  EXPECT_EQ(outcome.leases, (std::vector<std::uint64_t>{10, 11}));
  EXPECT_EQ(outcome.descriptors, 2U);
}

TEST(LaneGrant, MayComeInSeveralFrames) {
  FakeLane fake([](int socket) {
    greet(socket);
    const Said asked = receive_frame(socket);
    const UniqueFd file = client_page_file();
    send_frame(socket, part_of(9, {10, 11}, 3), asked.header.request, {file.get(), file.get()});
    send_frame(socket, part_of(9, {12}, 2), asked.header.request, {file.get()});
    send_frame(socket, part_of(9, {13, 14}, 0), asked.header.request, {file.get(), file.get()});
  });
  const Outcome outcome = grow(*connected(fake));
  ASSERT_TRUE(outcome.result) << to_string(outcome.result.error());
  EXPECT_EQ(outcome.leases, (std::vector<std::uint64_t>{10, 11, 12, 13, 14}));
  EXPECT_EQ(outcome.descriptors, 5U);
}

// While one thread imports, others read; the frames of both grants come mixed.
TEST(LaneGrant, OfSeveralThreadsAreNotMixed) {
  constexpr std::size_t kThreads = 4;
  constexpr std::uint64_t kFrames = 20;
  FakeLane fake([](int socket) {
    greet(socket);
    std::vector<Said> asked;
    while (asked.size() < kThreads) asked.push_back(receive_frame(socket));
    const UniqueFd file = client_page_file();
    for (std::uint64_t frame = 0; frame < kFrames; ++frame) {
      for (const Said& said : asked) {
        const std::uint64_t number = said.header.request;
        send_frame(socket, part_of(number, {number * 1000 + frame}, kFrames - frame - 1), number,
                   {file.get()});
      }
    }
    EXPECT_TRUE(receive_frame(socket).is<lane::Goodbye>());
  });
  const auto lane = connected(fake);
  std::vector<std::future<Outcome>> growths;
  for (std::size_t i = 0; i < kThreads; ++i)
    growths.push_back(std::async(std::launch::async, [&] { return grow(*lane); }));
  for (auto& one : growths) {
    const Outcome outcome = one.get();
    ASSERT_TRUE(outcome.result) << to_string(outcome.result.error());
    ASSERT_EQ(outcome.leases.size(), kFrames);
    for (std::uint64_t i = 0; i < kFrames; ++i) EXPECT_EQ(outcome.leases[i], outcome.leases[0] + i);
    EXPECT_EQ(outcome.descriptors, kFrames);
  }
  lane->goodbye();
}

TEST(LaneGrant, IsWaitedForLongerThanTheTimeoutOnceTheBrokerSaysSo) {
  constexpr milliseconds kShort(50);
  FakeLane fake([&](int socket) {
    greet(socket);
    const Said asked = receive_frame(socket);
    send_frame(socket, lane::Waiting{monotonic(kTimeout)}, asked.header.request);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(answered(socket).is<lane::Ping>()) << "asked whether it lives";
    const UniqueFd file = client_page_file();
    send_frame(socket, part_of(9, {10}), asked.header.request, {file.get()});
  });
  const Outcome outcome = grow(*connected(fake, kShort));
  ASSERT_TRUE(outcome.result) << to_string(outcome.result.error());
  EXPECT_EQ(outcome.leases, std::vector<std::uint64_t>{10});
}

TEST(LaneGrant, IsWaitedForAsLongAsTheBrokerLives) {
  for (const std::uint64_t until : {std::uint64_t{0}, monotonic(milliseconds(1)), ~std::uint64_t{0}}) {
    FakeLane fake([&](int socket) {
      greet(socket);
      const Said asked = receive_frame(socket);
      send_frame(socket, lane::Waiting{until}, asked.header.request);
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(answered(socket).is<lane::Ping>());
      const UniqueFd file = client_page_file();
      send_frame(socket, part_of(9, {10}), asked.header.request, {file.get()});
    });
    const Outcome outcome = grow(*connected(fake, milliseconds(50)));
    ASSERT_TRUE(outcome.result) << to_string(outcome.result.error());
  }
}

TEST(LaneGrant, ThatWaitsFailsWhenTheBrokerFallsSilent) {
  std::promise<void> over;
  FakeLane fake([&](int socket) {
    greet(socket);
    const Said asked = receive_frame(socket);
    send_frame(socket, lane::Waiting{monotonic(kTimeout)}, asked.header.request);
    EXPECT_TRUE(receive_frame(socket).is<lane::Ping>());
    over.get_future().wait();
  });
  const auto before = Lane::Clock::now();
  EXPECT_EQ(grow(*connected(fake, milliseconds(50))).result.error().code, Code::kUnavailable);
  EXPECT_LT(Lane::Clock::now() - before, kTimeout) << "it does not wait as long as the broker said";
  over.set_value();
}

TEST(LaneGrant, CalledOffEndsAsTheAnswerSays) {
  for (const bool granted : {false, true}) {
    std::promise<void> waiting;
    FakeLane fake([&](int socket) {
      greet(socket);
      const Said asked = receive_frame(socket);
      send_frame(socket, lane::Waiting{monotonic(kTimeout)}, asked.header.request);
      waiting.set_value();
      EXPECT_EQ(receive_frame(socket).as<lane::Cancel>().growth, asked.header.request);
      const UniqueFd file = client_page_file();
      if (granted) return send_frame(socket, part_of(9, {10}), asked.header.request, {file.get()});
      send_frame(socket, failed(Code::kCancelled, "cancelled"), asked.header.request);
    });
    const auto lane = connected(fake);
    std::stop_source stop;
    auto growing = std::async(std::launch::async, [&] { return grow(*lane, stop.get_token()); });
    waiting.get_future().wait();
    stop.request_stop();
    const Outcome outcome = growing.get();
    EXPECT_EQ(outcome.result.has_value(), granted);
    if (!granted) {
      EXPECT_EQ(outcome.result.error().code, Code::kCancelled);
    }
  }
}

TEST(LaneGrant, ReservationOfAJobIsCalledOffAsAGrowth) {
  std::stop_source stop;
  FakeLane fake([&](int socket) {
    greet(socket);
    const Said asked = receive_frame(socket);
    send_frame(socket, lane::Waiting{monotonic(kTimeout)}, asked.header.request);
    stop.request_stop();
    EXPECT_EQ(receive_frame(socket).as<lane::Cancel>().growth, asked.header.request);
    send_frame(socket, failed(Code::kCancelled, "cancelled"), asked.header.request);
  });
  const auto lane = connected(fake);
  const auto reserved = lane->reserve_for_job({0, 0, 1}, {lane->deadline(), stop.get_token()});
  ASSERT_FALSE(reserved);
  EXPECT_EQ(reserved.error().code, Code::kCancelled);
}

TEST(LaneGrant, CalledOffWithoutAnAnswerEndsWithinTheTimeout) {
  std::promise<void> waiting;
  std::promise<void> over;
  FakeLane fake([&](int socket) {
    greet(socket);
    const Said asked = receive_frame(socket);
    send_frame(socket, lane::Waiting{monotonic(kTimeout)}, asked.header.request);
    waiting.set_value();
    over.get_future().wait();
  });
  const auto lane = connected(fake, milliseconds(100));
  std::stop_source stop;
  const auto before = Lane::Clock::now();
  auto growing = std::async(std::launch::async, [&] { return grow(*lane, stop.get_token()); });
  waiting.get_future().wait();
  stop.request_stop();
  EXPECT_EQ(growing.get().result.error().code, Code::kUnavailable);
  EXPECT_LT(Lane::Clock::now() - before, kTimeout);
  over.set_value();
}

struct BrokenGrant : testing::TestWithParam<int> {
  static void play(int socket, std::uint64_t request) {
    const UniqueFd file = client_page_file();
    switch (GetParam()) {
      case 0:  // the second part is of another grant
        send_frame(socket, part_of(9, {10}, 1), request, {file.get()});
        return send_frame(socket, part_of(8, {11}, 0), request, {file.get()});
      case 1:  // a part too few
        send_frame(socket, part_of(9, {10}, 3), request, {file.get()});
        return send_frame(socket, part_of(9, {11}, 0), request, {file.get()});
      case 2:  // nothing, and more to come
        return send_frame(socket, part_of(9, {}, 5), request);
      case 3:  // something else after the first part
        send_frame(socket, part_of(9, {10}, 1), request, {file.get()});
        return send_frame(socket, lane::Done{}, request);
      case 4: {  // cut short
        const lane::Outgoing frame(part_of(9, {10, 11}), request);
        const int both[] = {file.get(), file.get()};
        EXPECT_TRUE(send_packet(socket, frame.bytes().substr(0, frame.bytes().size() - 8), both));
        return;
      }
      default: {  // more leases than it may have
        lane::Granted body = part_of(9, {10});
        std::string bytes(lane::Outgoing(body, request).bytes());
        bytes[sizeof(lane::Header) + offsetof(lane::Granted, count)] = '\xff';
        EXPECT_TRUE(send_packet(socket, bytes));
      }
    }
  }
};

TEST_P(BrokenGrant, IsAnErrorAndTheNextCallWorks) {
  FakeLane fake([](int socket) {
    greet(socket);
    play(socket, receive_frame(socket).header.request);
    while (!answered(socket).is<lane::Ping>()) {
    }
  });
  const auto lane = connected(fake);
  EXPECT_EQ(grow(*lane).result.error().code, Code::kInternal);
  EXPECT_TRUE(lane->call(lane::Ping{}));
}

INSTANTIATE_TEST_SUITE_P(Kinds, BrokenGrant, testing::Range(0, 6));

// Grants that arrive after a growth has failed halfway are given back like any late grant.
TEST(LaneGrant, ThatGoesOnAfterItsFailureIsGivenBack) {
  Pinned late;
  FakeLane fake([&](int socket) {
    greet(socket);
    const Said asked = receive_frame(socket);
    const UniqueFd file = client_page_file();
    send_frame(socket, part_of(9, {10}, 2), asked.header.request, {file.get()});
    send_frame(socket, part_of(8, {11}, 1), asked.header.request, {file.get()});
    send_frame(socket, part_of(9, {12}, 0), asked.header.request, {late.descriptor()});
    EXPECT_TRUE(receive_frame(socket).is<lane::Cancel>());
    EXPECT_TRUE(answered(socket).is<lane::Ping>());
    const auto back = receive_frame(socket).as<lane::Return>();
    EXPECT_EQ(back.slice, 1U);
    EXPECT_EQ(back.count, 1U);
    EXPECT_EQ(back.leases[0], 12U);
  });
  const auto lane = connected(fake);
  const Outcome outcome = grow(*lane);
  EXPECT_EQ(outcome.result.error().code, Code::kInternal);
  EXPECT_EQ(outcome.leases, (std::vector<std::uint64_t>{10, 11})) << "the caller returns these";
  EXPECT_TRUE(lane->call(lane::Ping{}));
  EXPECT_TRUE(late.is_let_go());
}

// An empty packet reads like the end of the lane, but for the descriptors that it may bring.
TEST(LaneGrant, ThatIsAnEmptyPacketLeavesNoDescriptorOpen) {
  Pinned pinned;
  FakeLane fake([&](int socket) {
    greet(socket);
    receive_frame(socket);
    EXPECT_TRUE(send_packet(socket, "", std::vector<int>{pinned.descriptor()}));
  });
  const auto lane = connected(fake);
  EXPECT_EQ(grow(*lane).result.error().code, Code::kUnavailable);
  EXPECT_TRUE(pinned.is_let_go());
}

}  // namespace
}  // namespace gpumem::client::test
