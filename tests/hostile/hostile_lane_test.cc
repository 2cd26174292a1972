// Bad input on a lane: the broker answers or hangs up, and goes on.
#include <sys/socket.h>

#include <deque>

#include "base/text/printable.h"
#include "tests/integration/hostile_fixture.h"
#include "tests/support/resident.h"

namespace gpumem::test {
namespace {

using HostileLane = HostileTest;

TEST_F(HostileLane, ThatSaysNothingIntelligibleIsClosed) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1"), std::string(1, '\xff'), std::string(4096, '\xff'),
        std::string("\x0a\x05zz"), std::string("\x7a\x01x")}) {
    RawLane one = lane();
    EXPECT_TRUE(one.send(bytes));
    EXPECT_TRUE(one.is_closed_by_broker()) << bytes.size() << " bytes";
  }
}

TEST_F(HostileLane, WithATruncatedHelloIsClosed) {
  const std::string whole(lane::Outgoing(hello("some label")).bytes());
  for (std::size_t length = 3; length < whole.size(); ++length) {
    RawLane one = lane();
    EXPECT_TRUE(one.send(whole.substr(0, length)));
    EXPECT_TRUE(one.is_closed_by_broker()) << length << " bytes";
  }
}

TEST_F(HostileLane, WithAMessageThatIsTooLongIsClosed) {
  FrameLane one = session();
  EXPECT_TRUE(one.raw().send(std::string(lane::kMostBytes + 1, '\0')));
  EXPECT_TRUE(one.raw().is_closed_by_broker());
}

TEST_F(HostileLane, WithAnEmptyMessageIsClosed) {
  FrameLane one = session();
  EXPECT_EQ(::send(one.raw().socket(), "", 0, MSG_NOSIGNAL), 0);
  EXPECT_TRUE(one.raw().is_closed_by_broker());
}

TEST_F(HostileLane, ThatAcceptsAGrantWithoutAnOfferChangesNothing) {
  FrameLane other = session(), one = session();
  FrameLane::Answer granted = other.grow(other.open_slice(), mebibytes(4));
  const std::uint64_t grant = granted.as<lane::Granted>().grant;
  for (const std::uint64_t made_up : {grant, std::uint64_t{0}, std::uint64_t{99'999}, ~std::uint64_t{0}})
    one.send(lane::Accept{made_up});
  FrameLane::Answer own = one.grow(one.open_slice(), mebibytes(2));  // comes after them
  EXPECT_EQ(broker_.device().offered(), mebibytes(6).count) << "the other's offer stands";
  other.send(lane::Accept{grant});
  EXPECT_TRUE(eventually([&] { return broker_.device().active() == mebibytes(4).count; }));
  own.descriptors.clear();
  granted.descriptors.clear();
  EXPECT_TRUE(one.goodbye());
  EXPECT_TRUE(other.goodbye());
}

TEST_F(HostileLane, ThatAcceptsTwiceIsChargedOnce) {
  ClientProcess one(broker_.folder());
  EXPECT_TRUE(succeeded(one.ask({{"do", "raw_connect"}})));
  EXPECT_TRUE(succeeded(one.ask({{"do", "raw_grow"}, {"bytes", mebibytes(2).count}})));
  EXPECT_TRUE(succeeded(one.ask({{"do", "raw_accept_again"}})));
  EXPECT_TRUE(succeeded(one.ask({{"do", "raw_grow"}, {"bytes", mebibytes(4).count}})));
  EXPECT_TRUE(eventually([&] { return broker_.device().active() == mebibytes(6).count; }));
  EXPECT_EQ(broker_.device().free(), (kPool - mebibytes(6)).count);
  one.kill();
}

TEST_F(HostileLane, WithABadLabelIsRefused) {
  for (const std::string_view label : {"a\nb", "\x1b[2J", "\xc2\x9b"}) {
    FrameLane one(broker_.folder());
    const auto refused = one.ask(hello(label)).as<lane::Failed>();
    EXPECT_EQ(refused.code, static_cast<std::uint64_t>(Code::kInvalidArgument));
  }
  FrameLane longest(broker_.folder());
  EXPECT_NE(longest.greet(std::string(kLabelBytes, 'x')).session, 0U);
}

// Where the kernel refuses them to the sender, the lane goes on. tests/hostile has both kernels.
TEST_F(HostileLane, ThatSendsDescriptorsIsClosedOrDoesNotGetThemThrough) {
  const std::vector<int> many(200, STDERR_FILENO);
  FrameLane early(broker_.folder()), late = session();
  const bool early_sent = early.raw().send(lane::Outgoing(hello()).bytes(), std::array{STDERR_FILENO});
  if (!early_sent) early.greet();
  EXPECT_EQ(early_sent, early_sent && early.raw().is_closed_by_broker());
  const bool late_sent = late.raw().send("x", many);
  EXPECT_EQ(late_sent, late_sent && late.raw().is_closed_by_broker());
}

TEST_F(HostileLane, ThatSaysGoodbyeAndStaysKeepsItsSession) {
  FrameLane one = session();
  EXPECT_TRUE(one.goodbye());
  EXPECT_TRUE(one.goodbye());
  EXPECT_TRUE(one.ask(lane::Ping{}).is(lane::Kind::kDone));
  one.raw().close();
  EXPECT_TRUE(eventually([&] { return broker_.sessions().empty(); }));
}

TEST_F(HostileLane, ThatIsPassedOnStillEndsWithTheProcessThatConnected) {
  ClientProcess one(broker_.folder());
  EXPECT_TRUE(succeeded(one.ask({{"do", "raw_connect"}})));
  const Json child = one.ask({{"do", "fork_idle"}});  // has the lane too, and lives on
  EXPECT_EQ(broker_.sessions().size(), 1U);
  one.kill();
  EXPECT_TRUE(eventually([&] { return broker_.sessions().empty(); }));
  EXPECT_EQ(::kill(child["pid"], 0), 0);
}

struct NeverReads : HostileTest {
  NeverReads() : HostileTest({.simulate = "1x4GiB", .config = "[broker]\nreserve = \"all-but 64MiB\"\n"}) {}
};

TEST_F(NeverReads, ItsLaneAndIsHungUpOnInTheEnd) {
  ClientProcess one(broker_.folder());
  EXPECT_TRUE(succeeded(one.ask({{"do", "raw_connect"}})));
  const Json answer = one.ask({{"do", "raw_flood"}, {"most", 10'000}});
  EXPECT_GT(answer["asked"], 200) << "an honest client may be slow: what the sockets hold is taken";
  EXPECT_LT(answer["asked"], 10'000);
  EXPECT_TRUE(
      eventually([&] { return broker_.log().find("it does not read its lane") != std::string::npos; }));
  EXPECT_TRUE(eventually([&] { return broker_.sessions()[0].ended(); }));
  auto normal = client_with(mebibytes(64));
  EXPECT_EQ(normal->leave(), 0);
  one.kill();
}

TEST_F(HostileLane, ThatReadsNoAnswersIsNotReadEither) {
  std::deque<FrameLane> lanes;
  while (lanes.size() < 50) {
    FrameLane& one = lanes.emplace_back(session());
    for (int i = 0; i < 64; ++i) one.open_slice();
  }
  const std::uint64_t before = resident_bytes(broker_.pid());
  const std::string question(lane::Outgoing(lane::Describe{}, 1).bytes());  // its answer has 14 KiB
  for (FrameLane& one : lanes) {
    for (int i = 0; i < 200; ++i)
      static_cast<void>(
          ::send(one.raw().socket(), question.data(), question.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  }
  EXPECT_TRUE(
      eventually([&] { return broker_.log().find("it does not read its lane") != std::string::npos; }));
  // All answers have 140 MiB. A sanitizer keeps for a while what is freed.
  EXPECT_LT(resident_bytes(broker_.pid()), before + (std::uint64_t{48} << 20));
}

}  // namespace
}  // namespace gpumem::test
