// A session by frames alone: everything that a client may ask, with a real broker.
#include <sys/socket.h>

#include "tests/integration/hostile_fixture.h"
#include "tests/support/lanes/frame_lane.h"

namespace gpumem::test {
namespace {

using lane::Kind;

struct LaneFrames : HostileTest {
  FrameLane frames() { return FrameLane(broker_.folder()); }
};

TEST_F(LaneFrames, CarryASessionFromHelloToGoodbye) {
  FrameLane one = frames();
  const lane::Welcome welcome = one.greet();
  EXPECT_EQ(welcome.version, lane::kVersion);
  EXPECT_NE(welcome.session, 0U);
  EXPECT_EQ(welcome.count, 1U);
  EXPECT_EQ(welcome.devices[0].view(), broker_.device().uuid());
  const std::uint64_t slice = one.open_slice();
  {
    const auto granted = one.grow(slice, mebibytes(6));
    const auto grant = granted.as<lane::Granted>();
    ASSERT_EQ(granted.descriptors.size(), grant.count) << "they come with the answer";
    EXPECT_EQ(grant.missing, 0U);
    EXPECT_EQ(broker_.device().offered(), mebibytes(6).count);
    one.send(lane::Accept{grant.grant});
    EXPECT_TRUE(eventually([&] { return broker_.device().active() == mebibytes(6).count; }));
    lane::Return back{slice, grant.count, {}};
    for (std::size_t i = 0; i < grant.count; ++i) back.leases[i] = grant.leases[i].lease;
    EXPECT_TRUE(one.ask(back).is(Kind::kDone));
  }
  EXPECT_TRUE(eventually([&] { return broker_.device().free() == kPool.count; }));
  EXPECT_TRUE(one.ask(lane::Ping{}).is(Kind::kDone));
  EXPECT_TRUE(one.ask(lane::Charge{0, mebibytes(2).count, 0}).is(Kind::kDone));
  EXPECT_TRUE(one.ask(lane::Charge{0, 0, 0}).is(Kind::kDone));
  EXPECT_TRUE(one.ask(lane::CloseSlice{slice}).is(Kind::kDone));
  one.send(lane::Goodbye{});
}

TEST_F(LaneFrames, DescribeTheSessionAndHowItsTenantStands) {
  FrameLane one = frames();
  const lane::Welcome welcome = one.greet();
  const auto none = one.ask(lane::Describe{}).as<lane::Described>();
  EXPECT_EQ(none.count, 0U);
  std::vector<std::uint64_t> slices;
  for (std::size_t i = 0; i < lane::kMostDescribed + 5; ++i) slices.push_back(one.open_slice(mebibytes(4)));
  std::vector<std::uint64_t> described;
  for (auto answer = one.ask(lane::Describe{});; answer = one.receive()) {
    const auto part = answer.as<lane::Described>();
    for (std::size_t i = 0; i < part.count; ++i) {
      described.push_back(part.slices[i].slice);
      EXPECT_EQ(part.slices[i].limit, mebibytes(4).count);
    }
    if (part.missing == 0) break;
    ASSERT_NE(part.count, 0U);
  }
  EXPECT_EQ(described, slices);
  const auto explained = one.ask(lane::Explain{}).as<lane::Explained>();
  EXPECT_EQ(explained.tenant.view(), welcome.tenant.view());
  ASSERT_EQ(explained.count, 1U);
  EXPECT_EQ(explained.devices[0].limit, kPool.count);
  EXPECT_EQ(explained.requests, 0U);
  one.send(lane::Goodbye{});
}

TEST_F(LaneFrames, OfALargeGrantComeOneAfterTheOther) {
  FrameLane one = frames();
  one.greet();
  lane::Grow grow = one.growth(one.open_slice(), mebibytes(220));
  grow.parts[0].largest_extent = mebibytes(2).count;
  // Extents of the size asked for are a preference: those that are warm may be larger.
  std::vector<FrameLane::Answer> answers;
  answers.push_back(one.ask(grow));
  std::uint64_t sum = 0;
  for (;;) {
    const auto part = answers.back().as<lane::Granted>();
    EXPECT_EQ(answers.back().descriptors.size(), part.count);
    for (std::size_t i = 0; i < part.count; ++i) sum += part.leases[i].size;
    if (part.missing == 0) break;
    answers.push_back(one.receive());
  }
  EXPECT_EQ(sum, mebibytes(220).count);
  answers.clear();
  one.send(lane::Goodbye{});
}

TEST_F(LaneFrames, SayWhyAGrowthIsRefused) {
  FrameLane one = frames();
  one.greet();
  const std::uint64_t slice = one.open_slice(mebibytes(4));
  const auto refused = one.grow(slice, mebibytes(6)).as<lane::Failed>();
  EXPECT_EQ(refused.code, static_cast<std::uint64_t>(Code::kResourceExhausted));
  EXPECT_EQ(refused.denial.reason, 1U) << refused.message.view();
  EXPECT_EQ(refused.denial.asked, mebibytes(6).count);
  EXPECT_EQ(refused.denial.pool, kPool.count);
  EXPECT_EQ(refused.denial.device.view(), broker_.device().uuid());
  EXPECT_NE(refused.message.view().find("4MiB"), std::string_view::npos) << refused.message.view();
  one.send(lane::Goodbye{});
}

TEST_F(LaneFrames, SayThatAGrowthWaitsBeforeTheyGrantIt) {
  auto holder = client_with(kPool);
  FrameLane one = frames();
  one.greet();
  const std::uint64_t slice = one.open_slice();
  const auto waiting = one.ask(one.growth(slice, mebibytes(2), std::chrono::hours(1)));
  ASSERT_TRUE(waiting.is(Kind::kWaiting));
  EXPECT_NE(waiting.as<lane::Waiting>().until, 0U);
  EXPECT_TRUE(succeeded(holder->shrink("a", {})));
  {
    const auto granted = one.receive();
    EXPECT_EQ(granted.header.request, waiting.header.request);
    EXPECT_EQ(granted.as<lane::Granted>().leases[0].size, mebibytes(2).count);
  }
  one.send(lane::Goodbye{});
  EXPECT_EQ(holder->leave(), 0);
}

TEST_F(LaneFrames, WithdrawAGrowthThatWaits) {
  auto holder = client_with(kPool);
  FrameLane one = frames();
  one.greet();
  const std::uint64_t slice = one.open_slice();
  const auto waiting = one.ask(one.growth(slice, mebibytes(2), std::chrono::hours(1)));
  ASSERT_TRUE(waiting.is(Kind::kWaiting));
  one.send(lane::Cancel{waiting.header.request});
  const auto ended = one.receive();
  EXPECT_EQ(ended.header.request, waiting.header.request);
  EXPECT_EQ(ended.as<lane::Failed>().code, static_cast<std::uint64_t>(Code::kCancelled));
  one.send(lane::Cancel{waiting.header.request});  // the request has ended: no effect
  one.send(lane::Cancel{987});
  EXPECT_TRUE(one.ask(lane::Ping{}).is(Kind::kDone));
  one.send(lane::Goodbye{});
  EXPECT_EQ(holder->leave(), 0);
}

TEST_F(LaneFrames, ThatComeAfterTheirDeadlineAreNotDone) {
  FrameLane one = frames();
  one.greet();
  const std::uint64_t slice = one.open_slice();
  const std::uint64_t long_ago = 1;
  one.send(one.growth(slice, mebibytes(2)), long_ago);
  EXPECT_EQ(one.receive().as<lane::Failed>().code, static_cast<std::uint64_t>(Code::kDeadlineExceeded));
  EXPECT_EQ(broker_.device().free(), kPool.count);
  one.send(lane::OpenSlice{0, 0, {}}, long_ago);
  EXPECT_TRUE(one.receive().is(Kind::kFailed));
  EXPECT_TRUE(one.ask(lane::CloseSlice{slice}).is(Kind::kDone));
  one.send(lane::Goodbye{});
}

TEST_F(LaneFrames, OfRequestsThatCannotBeAreRefusedAndTheSessionGoesOn) {
  FrameLane one = frames();
  one.greet();
  const std::uint64_t slice = one.open_slice();
  const auto code = [&](const FrameLane::Answer& answer) {
    return static_cast<Code>(answer.as<lane::Failed>().code);
  };
  EXPECT_EQ(code(one.ask(lane::OpenSlice{1, 0, {}})), Code::kNotFound);
  EXPECT_EQ(code(one.ask(lane::OpenSlice{~0ULL, 0, {}})), Code::kNotFound);
  EXPECT_EQ(code(one.ask(lane::OpenSlice{0, ~0ULL, {}})), Code::kInvalidArgument);
  lane::OpenSlice bell{0, 0, {}};
  bell.label.bytes[0] = '\a';
  EXPECT_EQ(code(one.ask(bell)), Code::kInvalidArgument);
  EXPECT_EQ(code(one.ask(lane::CloseSlice{slice + 1})), Code::kNotFound);
  EXPECT_EQ(code(one.ask(lane::Charge{7, 1, 0})), Code::kNotFound);
  EXPECT_EQ(code(one.ask(lane::Return{slice, 1, {99}})), Code::kNotFound);
  EXPECT_EQ(code(one.ask(lane::Grow{})), Code::kInvalidArgument) << "of nothing";
  EXPECT_EQ(code(one.ask(one.growth(slice, Bytes{~0ULL}))), Code::kInvalidArgument);
  lane::Grow twice = one.growth(slice, mebibytes(2));
  twice.parts[twice.count++] = twice.parts[0];
  EXPECT_EQ(code(one.ask(twice)), Code::kInvalidArgument);
  lane::Grow longest = one.growth(slice, mebibytes(2));
  longest.wait = ~0ULL;
  { EXPECT_TRUE(one.ask(longest).is(Kind::kGranted)); }
  one.send(lane::Goodbye{});
}

TEST_F(LaneFrames, ThatAreBrokenEndTheirOwnSessionAlone) {
  const auto sent = [](std::string bytes) { return bytes; };
  const std::string ping(lane::Outgoing(lane::Ping{}, 1).bytes());
  std::string other_kind = ping, other_version = ping;
  other_kind[6] = 99;
  other_version[4] = 77;
  lane::Return too_long{1, 0, {}};
  std::string counted(lane::Outgoing(too_long, 1).bytes());
  counted[sizeof(lane::Header) + 8] = 3;
  lane::OpenSlice unpadded{0, 0, {}};
  unpadded.label.bytes[5] = 'x';
  for (const std::string& bytes :
       {sent(other_kind), sent(other_version), ping.substr(0, 20), ping + "x", counted,
        std::string(lane::Outgoing(unpadded, 1).bytes()), std::string("neither"),
        std::string(lane::Outgoing(lane::Done{}, 1).bytes()),
        std::string(lane::Outgoing(lane::Spent{9}).bytes())}) {
    FrameLane one = frames();
    one.greet();
    EXPECT_TRUE(one.raw().send(bytes));
    EXPECT_TRUE(one.raw().is_closed_by_broker()) << bytes.size() << " bytes";
  }
}

TEST_F(LaneFrames, BeforeAHelloOrASecondHelloEndTheLane) {
  FrameLane silent = frames();
  silent.send(lane::Ping{});
  EXPECT_TRUE(silent.raw().is_closed_by_broker());
  FrameLane one = frames();
  one.greet();
  one.send(lane::Hello{lane::kVersion, lane::kVersion, 0, 0, {}});
  EXPECT_TRUE(one.raw().is_closed_by_broker());
}

// As a client of the next version says it: in a header of its own version.
template <class Body>
std::string of_version_2(const Body& body) {
  std::string frame(lane::Outgoing(body, 7).bytes());
  frame[offsetof(lane::Header, version)] = 2;
  return frame;
}

TEST_F(LaneFrames, OfAClientThatSpeaksVersion2AreRefusedInWords) {
  const lane::Resume claim{2, 2, 0, 1, 0, 0, {}};
  for (const std::string& frame : {of_version_2(lane::Hello{2, 2, 0, 0, {}}), of_version_2(claim)}) {
    FrameLane newer = frames();
    EXPECT_TRUE(newer.raw().send(frame));
    const FrameLane::Answer answer = newer.receive();
    const auto refused = answer.as<lane::Failed>();
    EXPECT_EQ(answer.header.request, 7U);
    EXPECT_EQ(refused.code, static_cast<std::uint64_t>(Code::kFailedPrecondition));
    EXPECT_EQ(
        refused.message.view(),
        "the client speaks versions 2 to 2 of the lane, this broker speaks 1: install the same version on "
        "both sides");
    EXPECT_TRUE(newer.raw().is_closed_by_broker());
  }
}

TEST_F(LaneFrames, OfAHelloGetTheVersionThatBothSpeak) {
  for (std::uint16_t oldest = 0; oldest <= 3; ++oldest) {
    for (std::uint16_t newest = oldest; newest <= 3; ++newest) {
      FrameLane one = frames();
      const auto answer = one.ask(lane::Hello{oldest, newest, 0, 0, {}});
      if (oldest > lane::kVersion || newest < lane::kVersion)
        EXPECT_TRUE(answer.is(Kind::kFailed)) << oldest << " to " << newest;
      else
        EXPECT_EQ(answer.as<lane::Welcome>().version, lane::kVersion);
    }
  }
}

/// Whether a session goes on after `body`.
template <class Body>
void expect_answered(const std::string& folder) {
  FrameLane one(folder);
  one.greet();
  one.send(Body{});
  EXPECT_NE(one.receive().header.kind, Kind{}) << "kind " << static_cast<int>(Body::kKind);
}

template <class... Bodies>
void expect_all_answered(const std::string& folder) {
  (expect_answered<Bodies>(folder), ...);
}

TEST_F(LaneFrames, OfEveryRequestAreAnswered) {
  expect_all_answered<lane::OpenSlice, lane::CloseSlice, lane::Grow, lane::Return, lane::Charge, lane::Ping,
                      lane::ExportHandle, lane::ImportHandle, lane::ReleaseImport, lane::Describe,
                      lane::Explain, lane::RevokeHandle, lane::Publish, lane::MapRegion, lane::RemoveRegion,
                      lane::MapOrReserve, lane::ReleaseReservation>(broker_.folder());
}

TEST_F(LaneFrames, WithOneNumberForTwoGrowthsEndTheLane) {
  auto holder = client_with(kPool);
  FrameLane one = frames();
  one.greet();
  const lane::Grow grow = one.growth(one.open_slice(), mebibytes(2), std::chrono::hours(1));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(one.raw().send(lane::Outgoing(grow, 77).bytes()));
  EXPECT_TRUE(one.raw().is_closed_by_broker());
  EXPECT_EQ(holder->leave(), 0);
}

TEST_F(LaneFrames, ReachNobodyElsesMemory) {
  FrameLane other = frames(), one = frames();
  other.greet();
  one.greet();
  const std::uint64_t slice = other.open_slice();
  auto granted = other.grow(slice, mebibytes(4));
  const auto grant = granted.as<lane::Granted>();
  lane::Return back{slice, 1, {grant.leases[0].lease}};
  EXPECT_TRUE(one.ask(back).is(Kind::kFailed));
  one.send(lane::Accept{grant.grant});
  EXPECT_TRUE(one.ask(one.growth(slice, mebibytes(2))).is(Kind::kFailed));
  EXPECT_TRUE(one.ask(lane::CloseSlice{slice}).is(Kind::kFailed));
  EXPECT_EQ(broker_.device().offered(), mebibytes(4).count);
  granted.descriptors.clear();
  other.send(lane::Goodbye{});
  one.send(lane::Goodbye{});
}

// Both are granted at once. The first answer finds the lane broken, which ends the session and takes back
// what the second answer would bring.
TEST_F(LaneFrames, OfTwoGrantsToAClientThatHasStoppedReadingEndItsSessionAlone) {
  auto holder = client_with(kPool);
  FrameLane one = frames();
  one.greet();
  const std::uint64_t slice = one.open_slice();
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(one.ask(one.growth(slice, mebibytes(2), std::chrono::hours(1))).is(Kind::kWaiting));
  one.send(lane::Goodbye{});
  EXPECT_EQ(::shutdown(one.raw().socket(), SHUT_RD), 0);
  EXPECT_TRUE(succeeded(holder->shrink("a", {})));
  EXPECT_TRUE(eventually([&] { return !broker_.running() || broker_.sessions().size() == 1; }));
  ASSERT_TRUE(broker_.running());
  EXPECT_EQ(holder->leave(), 0);
}

TEST_F(LaneFrames, ThatNobodyReadsEndTheLane) {
  FrameLane one = frames();
  one.greet();
  bool sent = true;
  for (int i = 0; sent && i < 100'000; ++i) sent = one.raw().send(lane::Outgoing(lane::Ping{}, 1).bytes());
  EXPECT_FALSE(sent);
}

}  // namespace
}  // namespace gpumem::test
