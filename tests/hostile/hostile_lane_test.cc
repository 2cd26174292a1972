// Bad input on a lane: the broker answers or hangs up, and goes on.
#include <sys/socket.h>

#include "proto/lane.h"
#include "tests/integration/hostile_fixture.h"

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
  const std::string whole = hello("some label").SerializeAsString();
  for (std::size_t length = 3; length < whole.size(); ++length) {
    RawLane one = lane();
    EXPECT_TRUE(one.send(whole.substr(0, length)));
    EXPECT_TRUE(one.is_closed_by_broker()) << length << " bytes";
  }
}

TEST_F(HostileLane, WithAMessageThatIsTooLongIsClosed) {
  RawLane one = lane();
  one.greet();
  EXPECT_TRUE(one.send(std::string(kLaneMessageBytes + 1, '\0')));
  EXPECT_TRUE(one.is_closed_by_broker());
}

TEST_F(HostileLane, WithAnEmptyMessageIsClosed) {
  RawLane one = lane();
  one.greet();
  EXPECT_EQ(::send(one.socket(), "", 0, MSG_NOSIGNAL), 0);
  EXPECT_TRUE(one.is_closed_by_broker());
}

TEST_F(HostileLane, WithoutAGreetingFirstIsClosed) {
  RawLane accepting = lane(), leaving = lane();
  EXPECT_TRUE(accepting.accept(1));
  EXPECT_TRUE(accepting.is_closed_by_broker());
  EXPECT_TRUE(leaving.goodbye());
  EXPECT_TRUE(leaving.is_closed_by_broker());
}

TEST_F(HostileLane, ThatGreetsTwiceIsClosed) {
  RawLane one = lane();
  one.greet();
  EXPECT_TRUE(one.send(hello()));
  EXPECT_TRUE(one.is_closed_by_broker());
}

TEST_F(HostileLane, ThatAcceptsAGrantWithoutAnOfferChangesNothing) {
  auto other = session();
  const v1::GrowResponse granted = other.grow(other.open_slice(), mebibytes(4).count);
  auto one = session();
  for (const std::uint64_t grant :
       {granted.grant(), std::uint64_t{0}, std::uint64_t{99'999}, ~std::uint64_t{0}}) {
    EXPECT_TRUE(one.lane.accept(grant)) << grant;
  }
  const v1::GrowResponse own = one.grow(one.open_slice(), mebibytes(2).count);  // comes after them
  EXPECT_EQ(broker_.device().offered(), mebibytes(6).count) << "the other's offer stands";
  EXPECT_TRUE(other.lane.accept(granted.grant()));
  EXPECT_TRUE(eventually([&] { return broker_.device().active() == mebibytes(4).count; }));
  for (RawSession* session : {&one, &other}) {
    session->lane.descriptors().clear();
    EXPECT_TRUE(session->lane.goodbye());
  }
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

TEST_F(HostileLane, OfAnotherProtocolIsRefusedWithBothVersions) {
  RawLane one = lane();
  v1::ToBroker message = hello();
  message.mutable_hello()->set_protocol(kLaneProtocol + 1);
  EXPECT_TRUE(one.send(message));
  const v1::ToClient answer = one.receive();
  EXPECT_EQ(answer.refused().code(), static_cast<int>(Code::kFailedPrecondition));
  EXPECT_NE(answer.refused().message().find(std::to_string(kLaneProtocol + 1)), std::string::npos);
  EXPECT_TRUE(one.is_closed_by_broker());
}

TEST_F(HostileLane, WithABadLabelIsRefused) {
  for (const std::string& label : {std::string(kLabelBytes + 1, 'x'), std::string("a\nb"),
                                   std::string("\x1b[2J"), std::string("a\0b", 3), std::string("\xc2\x9b")}) {
    RawLane one = lane();
    EXPECT_TRUE(one.send(hello(label)));
    EXPECT_EQ(one.receive().refused().code(), static_cast<int>(Code::kInvalidArgument));
  }
  RawLane longest = lane();
  EXPECT_NE(longest.greet(std::string(kLabelBytes, 'x')).session(), 0U);
}

// Where the kernel refuses them to the sender, the lane goes on. tests/hostile has both kernels.
TEST_F(HostileLane, ThatSendsDescriptorsIsClosedOrDoesNotGetThemThrough) {
  const std::vector<int> many(200, STDERR_FILENO);
  RawLane early = lane(), late = lane();
  const bool early_sent = early.send(hello(), std::array{STDERR_FILENO});
  if (!early_sent) early.greet();
  EXPECT_EQ(early_sent, early_sent && early.is_closed_by_broker());
  late.greet();
  const bool late_sent = late.send("x", many);
  EXPECT_EQ(late_sent, late_sent && late.is_closed_by_broker());
}

TEST_F(HostileLane, ThatSaysGoodbyeAndStaysKeepsItsSession) {
  auto one = session();
  EXPECT_TRUE(one.lane.goodbye());
  EXPECT_TRUE(one.lane.goodbye());
  EXPECT_TRUE(one.calls.ping().ok());
  one.lane.close();
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
  const Json answer = one.ask({{"do", "raw_flood"}, {"most", 2000}});
  EXPECT_GT(answer["granted"], 1024) << "an honest client may be slow";
  EXPECT_LT(answer["granted"], 2000);
  EXPECT_TRUE(
      eventually([&] { return broker_.log().find("it does not read its lane") != std::string::npos; }));
  EXPECT_TRUE(broker_.sessions()[0].ended());
  auto normal = client_with(mebibytes(64));
  EXPECT_EQ(normal->leave(), 0);
  one.kill();
}

}  // namespace
}  // namespace gpumem::test
