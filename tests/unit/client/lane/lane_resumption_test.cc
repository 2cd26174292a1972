// The broker ends, and another one resumes the session, or does not.
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <thread>

#include "tests/unit/client/lane/lane_fixture.h"

namespace gpumem::client::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

constexpr std::uint64_t kSession = 7;  // fake_lane.h's

// The client of a lane whose session can be resumed.
struct LaneResumed : testing::Test {
  std::unique_ptr<Lane> resumable(const FakeLane& fake) {
    auto lane = connected(fake);
    lane->resume_after_restart({kSession, "red", "", {"GPU-a"}}, [this](Greeting greeting) {
      greetings.push_back(std::move(greeting.welcome));
      return taken;
    });
    return lane;
  }
  std::vector<Welcome> greetings;
  Result<void> taken;
};

/// As LaneResumed::resumable, with calls that take `timeout` at most.
std::unique_ptr<Lane> resumable_within(const FakeLane& fake, milliseconds timeout) {
  auto lane = Lane::connect(fake.socket(), timeout);
  const auto greeting = (*lane)->greet("test");
  (*lane)->resume_after_restart({kSession, "red", "", {}}, [](Greeting) { return Result<void>(); });
  return std::move(*lane);
}

std::uint64_t monotonic_now() {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(Lane::Clock::now().time_since_epoch()).count());
}

lane::Resume receive_claim(int socket) {
  const Said said = receive_frame(socket);
  EXPECT_TRUE(said.is<lane::Resume>());
  return said.as<lane::Resume>();
}

void resume(int socket) {
  const Said said = receive_frame(socket);
  EXPECT_TRUE(said.is<lane::Resume>());
  EXPECT_EQ(said.as<lane::Resume>().session, kSession);
  send_welcome(socket, said.header.request, welcome({"GPU-a"}));
}

// To a Hello or a Resume.
void welcome_any(int socket) {
  const Said said = receive_frame(socket);
  send_welcome(socket, said.header.request, welcome({"GPU-a"}));
}

void grant(int socket, std::uint64_t request, const std::vector<std::uint64_t>& leases) {
  const UniqueFd file = client_page_file();
  send_frame(socket, part_of(9, leases), request, std::vector<int>(leases.size(), file.get()));
}

Result<void, GrowError> grow_for(Lane& lane, std::chrono::nanoseconds wait, std::stop_token stop = {}) {
  lane::Grow body = growth();
  body.wait = static_cast<std::uint64_t>(wait.count());
  const auto now = Lane::Clock::now();
  return lane.grow(body, {now + lane.timeout(), std::move(stop), now + wait + lane.timeout()},
                   [](GrantPart) {});
}

Result<void, GrowError> reserve_for(Lane& lane, std::chrono::nanoseconds wait) {
  const auto now = Lane::Clock::now();
  return lane.reserve_for_job({static_cast<std::uint64_t>(wait.count()), 0, 1 << 20},
                              {now + lane.timeout(), {}, now + wait + lane.timeout()});
}

TEST_F(LaneResumed, MakesCallsAgainThatWereNotAnswered) {
  FakeLane fake(
      [](int socket) {
        greet(socket);
        (void)receive_frame(socket);
      },
      [](int socket) {
        resume(socket);
        EXPECT_TRUE(answered(socket).is<lane::Ping>());
      });
  EXPECT_TRUE(resumable(fake)->call(lane::Ping{}));
  EXPECT_EQ(greetings.size(), 1U);
}

// A granted declaration is a fact, whatever room the next broker has. A refused one is none.
TEST_F(LaneResumed, DeclaresAgainWhatNoBrokerHasRefused) {
  std::vector<lane::Charge> told;
  FakeLane fake(
      [](int socket) {
        greet(socket);
        for (int i = 0; i < 4; ++i) {
          const Said said = receive_frame(socket);
          if (said.as<lane::Charge>().bytes == 9)
            send_frame(socket, failed(Code::kResourceExhausted, "no"), said.header.request);
          else
            send_frame(socket, lane::Done{}, said.header.request);
        }
      },
      [&](int socket) {
        resume(socket);
        for (Said said = receive_frame(socket); said.is<lane::Charge>(); said = receive_frame(socket)) {
          told.push_back(said.as<lane::Charge>());
          send_frame(socket, lane::Done{}, said.header.request);
        }
      });
  {
    const auto lane = resumable(fake);
    EXPECT_TRUE(lane->call(lane::Charge{0, 5, lane::Charge::kBounded}));
    EXPECT_FALSE(lane->call(lane::Charge{0, 9, lane::Charge::kBounded}));
    EXPECT_FALSE(lane->call(lane::Charge{1, 9, lane::Charge::kBounded}));
    EXPECT_TRUE(lane->call(lane::Charge{2, 3, 0}));
    EXPECT_TRUE(lane->call(lane::Charge{2, 4, 0}));
  }
  ASSERT_EQ(told.size(), 3U);
  EXPECT_EQ(told[0].bytes, 5U);
  EXPECT_EQ(told[0].flags, 0U);
  EXPECT_EQ(told[1].bytes, 3U);
  EXPECT_EQ(told[2].bytes, 4U) << "the call that was not answered";
}

TEST_F(LaneResumed, MakesAGrowthAgainForTheTimeThatIsLeft) {
  FakeLane fake(
      [](int socket) {
        greet(socket);
        const Said asked = receive_frame(socket);
        send_frame(socket, lane::Waiting{}, asked.header.request);
      },
      [](int socket) {
        resume(socket);
        const Said again = receive_frame(socket);
        EXPECT_LT(again.as<lane::Grow>().wait, std::chrono::nanoseconds(minutes(10)).count());
        EXPECT_GT(again.as<lane::Grow>().wait, std::chrono::nanoseconds(minutes(9)).count());
        grant(socket, again.header.request, {10});
      });
  EXPECT_TRUE(grow_for(*resumable(fake), minutes(10)));
}

// A broker does nothing whose deadline has passed.
TEST_F(LaneResumed, MakesAGrowthThatBeganWithoutABrokerWithANewDeadline) {
  std::promise<void> may_answer;
  FakeLane fake([](int socket) { greet(socket); },
                [&](int socket) {
                  const Said claim = receive_frame(socket);
                  may_answer.get_future().wait();
                  send_welcome(socket, claim.header.request, welcome({"GPU-a"}));
                  const Said asked = receive_frame(socket);
                  EXPECT_GT(asked.header.deadline, monotonic_now());
                  grant(socket, asked.header.request, {10});
                });
  auto lane = Lane::connect(fake.socket(), milliseconds(200));
  const auto greeting = (*lane)->greet("test");
  (*lane)->resume_after_restart({kSession, "red", "", {"GPU-a"}}, [](Greeting) { return Result<void>(); });
  EXPECT_FALSE((*lane)->call(lane::Ping{})) << "as long as a call waits, there is none";
  std::future<bool> grown =
      std::async(std::launch::async, [&] { return grow_for(**lane, minutes(10)).has_value(); });
  EXPECT_EQ(grown.wait_for(milliseconds(400)), std::future_status::timeout);
  may_answer.set_value();
  EXPECT_TRUE(grown.get());
}

// The pauses between attempts are those of all threads together.
TEST_F(LaneResumed, IsLookedForAtIntervalsHoweverManyThreadsWait) {
  const TemporaryFolder folder;
  const auto socket = folder.path() / "lane.sock";
  const UniqueFd listener = listen_at(socket);
  std::atomic<int> attempts{0};
  std::jthread broker([&](const std::stop_token& stop) {
    greet(UniqueFd(::accept(listener.get(), nullptr, nullptr)).get());
    pollfd next{listener.get(), POLLIN, 0};
    while (!stop.stop_requested()) {
      if (::poll(&next, 1, 10) != 1) continue;
      ++attempts;
      const UniqueFd ends_at_once(::accept(listener.get(), nullptr, nullptr));
    }
  });
  auto lane = Lane::connect(socket, milliseconds(100));
  ASSERT_TRUE((*lane)->greet("test"));
  (*lane)->resume_after_restart({kSession, "red", "", {"GPU-a"}}, [](Greeting) { return Result<void>(); });
  std::vector<std::future<bool>> growths;
  for (int i = 0; i < 3; ++i) {
    growths.push_back(
        std::async(std::launch::async, [&] { return grow_for(**lane, milliseconds(500)).has_value(); }));
  }
  for (auto& grown : growths) EXPECT_FALSE(grown.get());
  EXPECT_GT(attempts, 1);
  EXPECT_LT(attempts, 60);
}

TEST_F(LaneResumed, MakesAGrowthOnceThoughABrokerEndsAtOnce) {
  std::uint64_t first = 0;
  FakeLane fake(
      [&](int socket) {
        greet(socket);
        first = receive_frame(socket).as<lane::Grow>().wait;
      },
      [](int socket) { resume(socket); },
      [&](int socket) {
        resume(socket);
        const Said again = receive_frame(socket);
        EXPECT_LT(first - again.as<lane::Grow>().wait,
                  static_cast<std::uint64_t>(std::chrono::nanoseconds(minutes(1)).count()));
        grant(socket, again.header.request, {10});
        EXPECT_EQ(receive_frame(socket).header.kind, lane::Kind{}) << "it comes once";
      });
  auto lane = resumable(fake);
  EXPECT_TRUE(grow_for(*lane, minutes(10)));
  lane.reset();
}

TEST_F(LaneResumed, ClaimsWhatItWasGrantedAndHasNotReturned) {
  std::promise<std::vector<std::uint64_t>> claimed;
  FakeLane fake(
      [](int socket) {
        greet(socket);
        grant(socket, receive_frame(socket).header.request, {10, 11, 12});
        (void)receive_frame(socket);  // the Return, which is not answered
      },
      [&](int socket) {
        const lane::Resume claim = receive_claim(socket);
        std::vector<std::uint64_t> leases;
        for (std::uint64_t i = 0; i < claim.count; ++i) leases.push_back(claim.things[i].id);
        claimed.set_value(leases);
        send_welcome(socket, 1, welcome({"GPU-a"}));
        const Said again = receive_frame(socket);
        EXPECT_TRUE(again.is<lane::Return>());
        send_frame(socket, failed(Code::kNotFound, "no such lease"), again.header.request);
      });
  const auto lane = resumable(fake);
  ASSERT_TRUE(grow_for(*lane, {}));
  lane::Return back{};
  back.slice = 1;
  back.count = 1;
  back.leases[0] = 11;
  EXPECT_TRUE(lane->call(back)) << "it had been done";
  EXPECT_EQ(claimed.get_future().get(), (std::vector<std::uint64_t>{10, 12}));
}

TEST_F(LaneResumed, IsLostIfTheNextBrokerDoesNotKnowIt) {
  FakeLane fake([](int socket) { greet(socket); },
                [](int socket) {
                  (void)receive_claim(socket);
                  send_frame(socket, failed(Code::kUnauthenticated, "open a new session"), 1);
                });
  const auto lane = resumable(fake);
  for (int i = 0; i < 2; ++i) {
    const auto pinged = lane->call(lane::Ping{});
    ASSERT_FALSE(pinged);
    EXPECT_EQ(pinged.error().code, Code::kUnauthenticated);
    EXPECT_NE(pinged.error().message.find("open a new session"), std::string::npos);
  }
  EXPECT_TRUE(lane->is_closed());
}

TEST_F(LaneResumed, IsLostIfTheNextBrokerLendsOtherDevices) {
  FakeLane fake([](int socket) { greet(socket); },
                [](int socket) {
                  (void)receive_claim(socket);
                  send_welcome(socket, 1, welcome({"GPU-b", "GPU-a"}));
                });
  const auto pinged = resumable(fake)->call(lane::Ping{});
  ASSERT_FALSE(pinged);
  EXPECT_EQ(pinged.error().code, Code::kFailedPrecondition);
  EXPECT_TRUE(greetings.empty());
}

TEST_F(LaneResumed, WaitsForABrokerThatIsNotReadyAsLongAsTheCallMay) {
  FakeLane fake([](int socket) { greet(socket); });  // the next one has not accepted yet
  const auto lane = resumable_within(fake, milliseconds(50));
  const auto pinged = lane->call(lane::Ping{});
  ASSERT_FALSE(pinged);
  EXPECT_EQ(pinged.error().code, Code::kUnavailable);
  EXPECT_FALSE(lane->is_closed()) << "it may still come";
}

// As after setuid(), in a program that may not connect to the broker any more.
TEST_F(LaneResumed, SaysWhyItMayNotConnectToTheNextBroker) {
  FakeLane fake([](int socket) { greet(socket); });
  const auto lane = resumable_within(fake, milliseconds(50));
  std::filesystem::permissions(fake.folder(), std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  const auto pinged = lane->call(lane::Ping{});
  ASSERT_FALSE(pinged);
  EXPECT_EQ(pinged.error().code, Code::kUnavailable);
  EXPECT_NE(pinged.error().message.find("can be written to by every user"), std::string::npos)
      << pinged.error().message;
  EXPECT_FALSE(lane->is_closed()) << "it may be allowed again";
}

// The lane repeats the request with the remaining time, or with none if there was none.
TEST_F(LaneResumed, AsksAgainForAReservation) {
  for (const std::uint64_t wait : {std::uint64_t{0}, std::uint64_t{3'600'000'000'000}}) {
    FakeLane fake(
        [](int socket) {
          welcome_any(socket);
          EXPECT_TRUE(receive_frame(socket).is<lane::MapOrReserve>()) << "this one ends before it answers";
        },
        [wait](int socket) {
          welcome_any(socket);
          const Said said = receive_frame(socket);
          ASSERT_TRUE(said.is<lane::MapOrReserve>());
          EXPECT_LE(said.as<lane::MapOrReserve>().wait, wait);
          EXPECT_EQ(said.as<lane::MapOrReserve>().wait == 0, wait == 0);
          send_frame(socket, lane::NameReserved{7, 0}, said.header.request);
        });
    auto lane = resumable(fake);
    const auto now = Lane::Clock::now();
    const auto outcome = lane->map_or_reserve({lane::RegionName::of("weights"), 0, wait},
                                              {now + lane->timeout(), {}, now + minutes(10)});
    ASSERT_TRUE(outcome) << to_string(outcome.error());
    EXPECT_EQ(std::get<lane::NameReserved>(*outcome).reservation, 7U);
  }
}

TEST_F(LaneResumed, AsksAgainForAReservationOfItsJobForTheTimeThatIsLeft) {
  FakeLane fake(
      [](int socket) {
        greet(socket);
        send_frame(socket, lane::Waiting{}, receive_frame(socket).header.request);
      },
      [](int socket) {
        resume(socket);
        const Said again = receive_frame(socket);
        EXPECT_EQ(again.as<lane::ReserveForJob>().bytes, 1U << 20);
        EXPECT_LT(again.as<lane::ReserveForJob>().wait, std::chrono::nanoseconds(minutes(10)).count());
        EXPECT_GT(again.as<lane::ReserveForJob>().wait, std::chrono::nanoseconds(minutes(9)).count());
        send_frame(socket, lane::Done{}, again.header.request);
      });
  const auto lane = resumable(fake);
  EXPECT_TRUE(reserve_for(*lane, minutes(10)));
}

TEST_F(LaneResumed, GrowthThatIsCalledOffDoesNotWaitForABroker) {
  std::stop_source stop;
  FakeLane fake([&](int socket) {
    greet(socket);
    (void)receive_frame(socket);
    stop.request_stop();
  });
  auto lane = Lane::connect(fake.socket(), milliseconds(50));
  const auto greeting = (*lane)->greet("test");
  (*lane)->resume_after_restart({kSession, "red", "", {}}, [](Greeting) { return Result<void>(); });
  const auto grown = grow_for(**lane, minutes(10), stop.get_token());
  ASSERT_FALSE(grown);
  EXPECT_EQ(grown.error().code, Code::kCancelled);
}

TEST_F(LaneResumed, GrowthOfWhichAPartHasComeFails) {
  FakeLane fake(
      [](int socket) {
        greet(socket);
        const Said asked = receive_frame(socket);
        const UniqueFd file = client_page_file();
        send_frame(socket, part_of(9, {10}, 1), asked.header.request, {file.get()});
      },
      [](int socket) { resume(socket); });
  const auto grown = grow_for(*resumable(fake), minutes(10));
  ASSERT_FALSE(grown);
  EXPECT_EQ(grown.error().code, Code::kUnavailable);
}

TEST_F(LaneResumed, ByABrokerOfAnotherVersionIsRefusedInItsWords) {
  FakeLane fake([](int socket) { greet(socket); },
                [](int socket) {
                  const Said claim = receive_frame(socket);
                  EXPECT_EQ(claim.as<lane::Resume>().newest, lane::kVersion);
                  send_frame_of_version(2, socket, failed(Code::kFailedPrecondition, "install another"),
                                        claim.header.request);
                });
  auto lane = Lane::connect(fake.socket(), kTimeout);
  ASSERT_TRUE((*lane)->greet("test"));
  (*lane)->resume_after_restart({kSession, "red", "", {}}, [](Greeting) { return Result<void>(); });
  const auto asked = (*lane)->call(lane::Ping{});
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().code, Code::kFailedPrecondition);
  EXPECT_NE(asked.error().message.find("install another"), std::string::npos) << asked.error().message;
}

}  // namespace
}  // namespace gpumem::client::test
