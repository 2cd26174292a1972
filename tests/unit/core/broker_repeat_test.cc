#include <gmock/gmock.h>

#include "daemon/core/broker/sharer.h"
#include "tests/unit/core/machine.h"

// A client whose broker ended before it answered asks the next one again: what changes regions is done once.

namespace gpumem::core {
namespace {

Policy repeat_policy() {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64))};
  policy.tenants = {user("bob", 1, {{{}, mebibytes(64)}})};
  return policy;
}

class BrokerRepeat : public testing::Test {
 protected:
  BrokerRepeat() {
    publisher = machine.connect(1);
    mate = machine.connect(1);
    slice = machine.slice(publisher);
    grant = machine.get(publisher, slice, mebibytes(2));
  }
  Result<RegionId> publish(std::uint64_t request, const std::string& name = "weights") {
    Publish terms;
    terms.name = name;
    terms.number = request;
    auto version =
        machine.broker.publish(publisher, of_leases(terms, slice, Machine::leases_of(grant)), machine.now);
    machine.collect();
    return version;
  }
  Result<void> remove(std::uint64_t request, SessionId session) {
    auto removed = machine.broker.remove_region(session, {"weights", 0, request}, machine.now);
    machine.collect();
    return removed;
  }
  /// The broker ends, and both are back.
  void restart() {
    machine.restart(repeat_policy(), {grant});
    ASSERT_TRUE(machine.resume(publisher, {slice}, {grant}));
    ASSERT_TRUE(machine.resume(mate, {}, {}));
    grant = machine.before(grant);
  }
  std::size_t regions() const { return machine.broker.checkpoint().regions.size(); }

  Machine machine{repeat_policy()};
  SessionId publisher, mate;
  SliceId slice;
  Grant grant;
};

TEST_F(BrokerRepeat, OfAPublicationHasItsVersion) {
  const RegionId first = publish(7).value();
  const RegionId second = publish(8).value();
  restart();
  EXPECT_EQ(publish(7).value(), first);
  EXPECT_EQ(publish(8).value(), second);
  EXPECT_EQ(regions(), 2U);
  EXPECT_GT(publish(9).value(), second) << "it is another request";
}

TEST_F(BrokerRepeat, OfARemovalLeavesTheVersionBefore) {
  const RegionId first = publish(1).value();
  ASSERT_TRUE(publish(2));
  ASSERT_TRUE(remove(3, publisher));
  restart();
  EXPECT_TRUE(remove(3, publisher));
  EXPECT_EQ(machine.broker.checkpoint().regions.begin()->first, first);
  EXPECT_EQ(regions(), 1U);
  EXPECT_TRUE(remove(3, mate)) << "another session's number 3 is another request";
  EXPECT_EQ(regions(), 0U);
}

TEST_F(BrokerRepeat, ThatNobodyMadeBeforeIsMade) {
  ASSERT_TRUE(publish(1));
  restart();
  EXPECT_TRUE(publish(2));
  EXPECT_EQ(regions(), 2U);
}

TEST_F(BrokerRepeat, OfWhatHasEndedSinceIsMadeAgain) {
  const RegionId first = publish(1).value();
  restart();
  ASSERT_TRUE(remove(5, mate));
  EXPECT_GT(publish(1).value(), first);
}

TEST_F(BrokerRepeat, IsOfTheSameNameOnly) {
  const RegionId first = publish(1).value();
  restart();
  EXPECT_GT(publish(1, "other").value(), first) << "a client that lies learns of no other region";
}

TEST_F(BrokerRepeat, IsKnownAfterSeveralRestarts) {
  const RegionId first = publish(1).value();
  restart();
  restart();
  EXPECT_EQ(publish(1).value(), first);
}

TEST_F(BrokerRepeat, IsNoRepetitionAtTheSameBroker) {
  const RegionId first = publish(1).value();
  EXPECT_GT(publish(1).value(), first) << "who has had the answer may use the number again";
}

TEST_F(BrokerRepeat, IsNotKnownWithoutANumber) {
  const RegionId first = publish(0).value();
  restart();
  EXPECT_GT(publish(0).value(), first);
}

TEST_F(BrokerRepeat, IsKnownOfTheLatestRequests) {
  const RegionId first = publish(1).value();
  for (std::uint64_t i = 2; i <= LastAnswers::kMostOfSession; ++i) ASSERT_TRUE(publish(i));
  const RegionId last = publish(LastAnswers::kMostOfSession + 1).value();
  restart();
  EXPECT_EQ(publish(LastAnswers::kMostOfSession + 1).value(), last);
  EXPECT_GT(publish(1).value(), first) << "it was forgotten";
  EXPECT_EQ(machine.broker.checkpoint().answers.at(publisher).size(), LastAnswers::kMostOfSession);
}

TEST_F(BrokerRepeat, IsForgottenWithTheSession) {
  ASSERT_TRUE(publish(1));
  machine.broker.session_ended(publisher, SessionEnd::kExited, machine.now);
  machine.collect();
  EXPECT_TRUE(machine.broker.checkpoint().answers.empty());
}

}  // namespace
}  // namespace gpumem::core
