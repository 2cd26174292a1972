// Borrowers that do not give back, and tenants that declare what is not so: each costs its own tenant alone.
#include "tests/integration/ending_config.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

// Deadline and grace are 1.3 s together. The rest is for a slow machine.
constexpr std::chrono::seconds kPromised{10};

struct Borrower : BrokerTest {
  explicit Borrower(const std::string& more = "")
      : BrokerTest(
            {.config = "[broker]\nreserve = \"100%\"\nsocket_group = 10000\n" + (kEndsWhoKeeps + more)}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }

  /// Bob has mapped the whole device, by a session made by hand.
  std::unique_ptr<ClientProcess> borrower() {
    auto bob = std::make_unique<ClientProcess>(broker_.folder(), ClientOptions{.user = kBob});
    EXPECT_TRUE(succeeded(bob->ask({{"do", "raw_connect"}})));
    EXPECT_TRUE(succeeded(bob->ask({{"do", "raw_grow"}, {"bytes", mebibytes(256).count}})));
    EXPECT_TRUE(succeeded(bob->ask({{"do", "raw_map"}})));
    return bob;
  }
  std::unique_ptr<ClientProcess> claimant() {
    auto ann = client({}, kAnn);
    ann->begin_to_grow("a", mebibytes(64), kPromised);
    return ann;
  }
  void await_request() {
    EXPECT_TRUE(eventually([&] { return broker_.device().asked_back() != 0; }));
  }
  void expect_claim_granted_and_borrower_ended(ClientProcess& ann, ClientProcess& bob) {
    EXPECT_TRUE(succeeded(ann.answer()));
    EXPECT_EQ(bob.child().wait(), -SIGTERM);
    EXPECT_EQ(ann.leave(), 0);
    expect_rest();
  }
};

TEST_F(Borrower, ThatIgnoresTheRequestIsEnded) {
  auto bob = borrower();
  auto ann = claimant();
  expect_claim_granted_and_borrower_ended(*ann, *bob);
}

TEST_F(Borrower, ThatClosesItsLaneAndLivesOnIsEnded) {
  auto bob = borrower();
  auto ann = claimant();
  await_request();
  EXPECT_TRUE(succeeded(bob->ask({{"do", "raw_leave"}, {"goodbye", false}})));
  expect_claim_granted_and_borrower_ended(*ann, *bob);
}

TEST_F(Borrower, ThatSaysGoodbyeAndKeepsTheMemoryIsEnded) {
  auto bob = borrower();
  auto ann = claimant();
  await_request();
  EXPECT_TRUE(succeeded(bob->ask({{"do", "raw_leave"}, {"goodbye", true}})));
  expect_claim_granted_and_borrower_ended(*ann, *bob);
}

TEST_F(Borrower, ThatReturnsButKeepsTheMemoryIsEnded) {
  auto bob = borrower();
  auto ann = claimant();
  await_request();
  EXPECT_TRUE(succeeded(bob->ask({{"do", "raw_return"}})));
  expect_claim_granted_and_borrower_ended(*ann, *bob);
}

TEST_F(Borrower, ThatLeftItsMemoryBehindLongAgoIsEndedForAClaim) {
  auto bob = borrower();
  EXPECT_TRUE(succeeded(bob->ask({{"do", "raw_leave"}, {"goodbye", false}})));
  EXPECT_TRUE(eventually([&] { return broker_.device().quarantined() == mebibytes(256).count; }));
  auto ann = claimant();
  expect_claim_granted_and_borrower_ended(*ann, *bob);
}

TEST_F(Borrower, ThatIsStoppedIsKilled) {
  auto bob = borrower();
  bob->child().signal(SIGSTOP);
  auto ann = claimant();
  EXPECT_TRUE(succeeded(ann->answer()));
  EXPECT_EQ(bob->child().wait(), -SIGKILL);
  expect_rest_after(*ann);
}

// ---- Declarations and debts ----

constexpr const char* kLab = R"(
[[tenant]]
name = "lab"
limit = "160MiB"
[[tenant]]
name = "bob"
user = 10002
parent = "lab"
[[tenant]]
name = "cat"
user = 10003
parent = "lab"
guarantee = "64MiB"
)";

struct Declaration : Borrower {
  explicit Declaration(const std::string& more = kLab) : Borrower(more) {}
  std::unique_ptr<ClientProcess> declarer(Bytes bytes) {
    auto bob = client({}, kBob);
    EXPECT_TRUE(
        succeeded(bob->ask({{"do", "charge"}, {"device", broker_.device().uuid()}, {"bytes", bytes.count}})));
    return bob;
  }
};

TEST_F(Declaration, OfMissingMemoryDelaysNoSiblingAndCostsTheDeclarerAlone) {
  auto cat = client_with(mebibytes(16), kCat);
  auto bob = declarer(mebibytes(200));
  EXPECT_TRUE(succeeded(cat->grow("a", mebibytes(64)))) << "it has a guarantee, and the memory is free";
  EXPECT_EQ(bob->child().wait(), -SIGTERM) << "the group is over its limit by what he declared";
  EXPECT_TRUE(cat->child().running());
  expect_rest_after(*cat);
}

struct TwoDebts : Borrower {
  static std::string limits(const char* bob, const char* cat) {
    const auto tenant = [](const char* name, int uid, const char* limit) {
      return std::string("[[tenant]]\nname = \"") + name + "\"\nuser = " + std::to_string(uid) +
             "\nlimit = \"" + limit + "\"\n";
    };
    return tenant("bob", 10'002, bob) + tenant("cat", 10'003, cat);
  }
  static std::string config(const char* bob, const char* cat) {
    return "[broker]\nreserve = \"100%\"\nsocket_group = 10000\nreclaim_deadline_ms = 1500\n"
           "escalation = \"end-session\"\ngrace_seconds = 1\ncontext_overhead = \"0B\"\n" +
           limits(bob, cat);
  }
  TwoDebts() : Borrower("") {}
};

TEST_F(TwoDebts, HaveADeadlineAndAVictimEach) {
  broker_.reload(config("128MiB", "128MiB"));
  auto bob = client_with(mebibytes(96), kBob);
  auto cat = client_with(mebibytes(96), kCat);
  bob->child().signal(SIGSTOP);  // so that he is overdue for a while
  broker_.reload(config("64MiB", "128MiB"));
  EXPECT_TRUE(eventually([&] { return broker_.log().find("SIGTERM sent") != std::string::npos; }));
  broker_.reload(config("64MiB", "64MiB"));
  EXPECT_TRUE(succeeded(cat->shrink("a", mebibytes(48)))) << "it has its own time";
  EXPECT_TRUE(eventually([&] { return broker_.tenant("cat").debt() == 0; }));
  EXPECT_EQ(bob->child().wait(), -SIGKILL);
  EXPECT_TRUE(cat->child().running());
  expect_rest_after(*cat);
}

// Memory that a client took past the broker, and declared later, beyond its limit.
struct Excuse : BrokerTest {
  Excuse()
      : BrokerTest({.config = "[broker]\nreserve = \"all-but 128MiB\"\nsocket_group = 10000\n"
                              "past_broker = \"end\"\npast_broker_allowance = \"16MiB\"\n"
                              "reconcile_seconds = 1\npast_broker_confirm_seconds = 1\ngrace_seconds = 1\n"
                              "[[tenant]]\nname = \"bob\"\nuser = 10002\nlimit = \"64MiB\"\n"}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
};

TEST_F(Excuse, IsNoneBeyondTheLimit) {
  auto bob = client({}, kBob);
  EXPECT_TRUE(succeeded(bob->ask({{"do", "take"}, {"bytes", mebibytes(112).count}})));
  EXPECT_TRUE(succeeded(
      bob->ask({{"do", "charge"}, {"device", broker_.device().uuid()}, {"bytes", mebibytes(112).count}})));
  EXPECT_EQ(bob->child().wait(), -SIGTERM);
  expect_rest();
}

TEST_F(Excuse, IsAsMuchAsTheLimitHasRoomFor) {
  auto bob = client({}, kBob);
  EXPECT_TRUE(succeeded(bob->ask({{"do", "take"}, {"bytes", mebibytes(48).count}})));
  EXPECT_TRUE(succeeded(
      bob->ask({{"do", "charge"}, {"device", broker_.device().uuid()}, {"bytes", mebibytes(48).count}})));
  const auto looks = [&] {
    const auto began = std::chrono::steady_clock::now();
    return eventually([&] { return std::chrono::steady_clock::now() - began > std::chrono::seconds(4); });
  };
  EXPECT_TRUE(looks()) << "several looks pass";
  EXPECT_TRUE(bob->child().running());
  EXPECT_EQ(bob->leave(), 0);
}

// ---- Rules that change ----

struct Renamed : Borrower {
  static std::string config(const char* name, const char* limit) {
    return std::string(
               "[broker]\nreserve = \"100%\"\nsocket_group = 10000\ncontext_overhead = "
               "\"0B\"\n[[tenant]]\nname = \"") +
           name + "\"\nuser = 10002\nlimit = \"" + limit + "\"\n";
  }
};

TEST_F(Renamed, RuleHoldsForLivingSessions) {
  broker_.reload(config("bob", "128MiB"));
  auto bob = client_with(mebibytes(64), kBob);
  broker_.reload(config("robert", "96MiB"));
  EXPECT_EQ(broker_.tenant("robert").charged(), mebibytes(64).count);
  EXPECT_EQ(broker_.tenant("bob").charged(), 0U);
  EXPECT_TRUE(failed_with(bob->grow("a", mebibytes(128)), "RESOURCE_EXHAUSTED"));
  EXPECT_TRUE(succeeded(bob->grow("a", mebibytes(96))));
  expect_rest_after(*bob);
}

}  // namespace
}  // namespace gpumem::test
