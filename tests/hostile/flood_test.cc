// Very many clients at once: the broker serves those that it can, and the others keep nobody from it.
#include <sys/resource.h>

#include "tests/integration/hostile_fixture.h"

namespace gpumem::test {
namespace {

// Descriptors for `count` lanes here; the broker sees to its own.
bool raise_file_limit(rlim_t count) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= count) return true;
  limit.rlim_cur = count;
  limit.rlim_max = std::max(limit.rlim_max, count);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

constexpr std::size_t kMany = 2000;

using Flood = HostileTest;

TEST_F(Flood, OfSessionsDoesNotKeepOthersOut) {
  if (!raise_file_limit(4 * kMany)) GTEST_SKIP() << "this user may not open " << 4 * kMany << " files";
  std::vector<FrameLane> lanes;
  for (std::size_t i = 0; i < kMany; ++i) lanes.emplace_back(broker_.folder());
  for (FrameLane& one : lanes) one.send(hello());
  auto normal = client_with(mebibytes(64));
  for (FrameLane& one : lanes) EXPECT_TRUE(one.receive().is(lane::Kind::kWelcome));
  EXPECT_EQ(broker_.status().sessions(), kMany + 1);
  EXPECT_TRUE(succeeded(normal->write("a", 1)));
  EXPECT_EQ(normal->leave(), 0);
}

// The one test that waits for a time: the broker's patience with those who say nothing, ten seconds.
TEST_F(Flood, OfConnectionsThatSayNothingIsHungUpOn) {
  if (!raise_file_limit(2 * kMany)) GTEST_SKIP() << "this user may not open " << 2 * kMany << " files";
  std::vector<RawLane> lanes;
  for (std::size_t i = 0; i < kMany; ++i) lanes.push_back(lane());
  auto normal = client_with(mebibytes(64));
  EXPECT_EQ(broker_.status().sessions(), 1U);
  for (RawLane& one : lanes) EXPECT_TRUE(one.is_closed_by_broker());
  EXPECT_TRUE(succeeded(normal->ask({{"do", "ping"}})));
  EXPECT_EQ(normal->leave(), 0);
}

TEST_F(Flood, OfConnectionsThatComeAndGoLeavesNothing) {
  for (std::size_t i = 0; i < kMany; ++i) {
    RawLane one = lane();
    if (i % 2 == 0) {
      EXPECT_TRUE(one.send(lane::Outgoing(hello()).bytes()));
    }
  }
  EXPECT_TRUE(eventually([&] { return broker_.sessions().empty(); }));
}

// A broker that cannot have more descriptors, as one that was not started by root.
struct FewDescriptors : HostileTest {
  FewDescriptors()
      : HostileTest(::geteuid() != 0
                        ? BrokerOptions{.config = kSomeSpare}
                        : BrokerOptions{.config = kSomeSpare, .user = test_user(10'001), .open_files = 400}) {
  }
  void SetUp() override {
    GPUMEM_NEEDS_ROOT();
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer itself needs descriptors, and takes their lack for damaged memory";
#endif
    HostileTest::SetUp();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    // The broker closes the connections of the flood, and only then takes others.
    EXPECT_TRUE(eventually([&] { return ClientProcess(broker_.folder()).connect()["ok"].get<bool>(); }));
    HostileTest::TearDown();
  }
};

TEST_F(FewDescriptors, LeaveConnectedClientsServed) {
  auto normal = client_with(mebibytes(64));
  std::vector<RawLane> lanes;
  for (int i = 0; i < 600; ++i) lanes.push_back(lane());
  for (RawLane& one : lanes) static_cast<void>(one.send(lane::Outgoing(hello()).bytes()));
  EXPECT_TRUE(eventually([&] { return broker_.log().find("LimitNOFILE") != std::string::npos; }));
  EXPECT_TRUE(succeeded(normal->ask({{"do", "ping"}})));
  EXPECT_TRUE(succeeded(normal->write("a", 1)));
  EXPECT_TRUE(succeeded(normal->shrink("a", mebibytes(32))));
  EXPECT_TRUE(succeeded(normal->check("a", 1)));
  lanes.clear();
  EXPECT_TRUE(succeeded(normal->grow("a", kPool, std::chrono::seconds(20))));
  EXPECT_EQ(normal->leave(), 0);
}

struct Crowd : BrokerTest {
  Crowd() : BrokerTest({.config = std::string(kSomeSpare) + "max_sessions = 3\n"}) {}
};

TEST_F(Crowd, OfMoreSessionsThanConfiguredIsRefusedWithTheReason) {
  auto one = client(), two = client(), three = client();
  ClientProcess four(broker_.folder());
  const Json answer = four.connect();
  EXPECT_TRUE(failed_with(answer, "RESOURCE_EXHAUSTED"));
  EXPECT_NE(answer["message"].get<std::string>().find("max_sessions"), std::string::npos) << answer;
  two->kill();
  EXPECT_TRUE(eventually([&] { return succeeded(four.connect()).operator bool(); }));
}

}  // namespace
}  // namespace gpumem::test
