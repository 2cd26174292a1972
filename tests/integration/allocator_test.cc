// Allocators of real processes: what they hold is charged, comes back, and is given to others when asked.
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

using std::chrono::minutes;

struct AllocatorProcess : BrokerTest {
  using BrokerTest::BrokerTest;

  std::unique_ptr<ClientProcess> allocating(const Json& options = Json::object(),
                                            std::optional<User> user = {}) {
    auto client = std::make_unique<ClientProcess>(broker_.folder(), ClientOptions{.user = user});
    EXPECT_TRUE(succeeded(client->connect("test", client_timeout_)));
    Json command = options;
    command["do"] = "open_allocator";
    EXPECT_TRUE(succeeded(client->ask(command)));
    return client;
  }
  static std::uint64_t allocate(ClientProcess& client, Bytes bytes) {
    const Json answer = client.ask({{"do", "allocate"}, {"bytes", bytes.count}});
    EXPECT_TRUE(succeeded(answer));
    return answer.value("at", std::uint64_t{0});
  }
  static void free(ClientProcess& client, std::uint64_t at, Bytes bytes) {
    EXPECT_TRUE(succeeded(client.ask({{"do", "free"}, {"at", at}, {"bytes", bytes.count}})));
  }
  static Json write(ClientProcess& client, std::uint64_t at, Bytes bytes, int value) {
    return client.ask({{"do", "write_block"}, {"at", at}, {"bytes", bytes.count}, {"value", value}});
  }
  static Json check(ClientProcess& client, std::uint64_t at, Bytes bytes, int value) {
    return client.ask({{"do", "check_block"}, {"at", at}, {"bytes", bytes.count}, {"value", value}});
  }
  static std::uint64_t charged(ClientProcess& client) {
    return client.ask({{"do", "usage"}})["devices"][0]["charged"].get<std::uint64_t>();
  }
  static std::uint64_t committed(ClientProcess& client) {
    return client.ask({{"do", "figures"}})["committed"].get<std::uint64_t>();
  }
};

TEST_F(AllocatorProcess, ChargeRisesWithBlocksAndFallsWhenIdle) {
  auto one = allocating({{"idle_ms", 100}});
  EXPECT_EQ(charged(*one), 0U) << "an allocator alone costs nothing";
  const auto at = allocate(*one, mebibytes(64));
  EXPECT_GE(charged(*one), mebibytes(64).count);
  EXPECT_EQ(broker_.device().free(), kPool.count - charged(*one));
  free(*one, at, mebibytes(64));
  EXPECT_TRUE(eventually([&] { return charged(*one) == 0; })) << charged(*one);
  expect_rest_after(*one);
}

TEST_F(AllocatorProcess, BlocksAreUsableAndKeepWhatTheyHoldWhileExtentsMove) {
  auto one = allocating();
  std::vector<std::uint64_t> all;
  for (int i = 0; i < 56; ++i) {
    all.push_back(allocate(*one, mebibytes(4)));
    EXPECT_TRUE(succeeded(write(*one, all.back(), mebibytes(4), i)));
  }
  for (std::size_t i = 0; i < all.size(); i += 2) free(*one, all[i], mebibytes(4));
  const Json large = one->ask({{"do", "allocate"}, {"bytes", mebibytes(48).count}});
  if (large["ok"].get<bool>()) {
    EXPECT_TRUE(succeeded(write(*one, large["at"], mebibytes(48), 0xee)));
  }
  for (std::size_t i = 1; i < all.size(); i += 2) {
    EXPECT_TRUE(succeeded(check(*one, all[i], mebibytes(4), static_cast<int>(i))));
  }
  expect_rest_after(*one);
}

TEST_F(AllocatorProcess, WholePoolIsAllocatedAsOneBlockRepeatedly) {
  auto one = allocating();
  for (int i = 0; i < 4; ++i) {
    const auto at = allocate(*one, kPool);
    EXPECT_TRUE(succeeded(write(*one, at, kPool, i)));
    free(*one, at, kPool);
    EXPECT_EQ(one->ask({{"do", "trim"}})["trimmed"], kPool.count);
    EXPECT_TRUE(eventually([&] { return broker_.device().free() == kPool.count; })) << broker_.unrest();
  }
}

TEST_F(AllocatorProcess, DoesWithoutCachesOnceASeccompFilterForbidsMembarrier) {
  auto one = allocating();
  const auto hits = [&] { return one->ask({{"do", "figures"}})["cache_hits"].get<std::uint64_t>(); };
  const auto churn = [&] {
    EXPECT_TRUE(succeeded(one->ask({{"do", "churn"}, {"steps", 2000}, {"seed", 1}})));
  };
  churn();
  EXPECT_GT(hits(), 0U);
  EXPECT_TRUE(succeeded(one->ask({{"do", "forbid_membarrier"}})));
  EXPECT_TRUE(succeeded(one->ask({{"do", "trim"}})));
  const auto before = hits();
  churn();
  EXPECT_EQ(hits(), before);
  expect_rest_after(*one);
}

// The idle time would bring it back after an hour: the broker asks for it.
TEST_F(AllocatorProcess, CachedMemoryGoesToAnotherProcessOfTheUser) {
  auto one = allocating({{"idle_ms", 3'600'000}});
  const auto kept = allocate(*one, mebibytes(20));
  EXPECT_TRUE(succeeded(write(*one, kept, mebibytes(20), 3)));
  free(*one, allocate(*one, mebibytes(200)), mebibytes(200));
  auto other = client({});
  EXPECT_TRUE(succeeded(other->grow("a", mebibytes(64), minutes(1))));
  EXPECT_TRUE(succeeded(check(*one, kept, mebibytes(20), 3)));
  EXPECT_TRUE(failed_with(other->grow("a", kPool, std::chrono::milliseconds(500)), "DEADLINE_EXCEEDED"))
      << "what is in use stays";
  EXPECT_EQ(committed(*one), mebibytes(20).count);
}

struct AskedAllocator : AllocatorProcess {
  AskedAllocator() : AllocatorProcess({.config = shared(kLending)}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
};

TEST_F(AskedAllocator, CachedMemoryGoesToAGuaranteeAndBlocksInUseStay) {
  auto bob = allocating({{"idle_ms", 3'600'000}}, test_user(10'002));
  const auto kept = allocate(*bob, mebibytes(20));
  EXPECT_TRUE(succeeded(write(*bob, kept, mebibytes(20), 3)));
  free(*bob, allocate(*bob, mebibytes(190)), mebibytes(190));
  EXPECT_GE(committed(*bob), mebibytes(210).count);
  auto ann = client({}, test_user(10'001));
  EXPECT_TRUE(succeeded(ann->grow("a", mebibytes(64), minutes(1))));
  EXPECT_LE(committed(*bob), (kPool - mebibytes(64)).count);
  EXPECT_TRUE(succeeded(check(*bob, kept, mebibytes(20), 3)));
  EXPECT_TRUE(succeeded(ann->check("a", 0))) << "nobody's old bytes";
}

TEST_F(AllocatorProcess, KilledWithBlocksLeavesNoCharge) {
  for (int round = 0; round < 3; ++round) {
    auto one = allocating();
    allocate(*one, mebibytes(100));
    one->tell({{"do", "churn"}, {"steps", 1'000'000}, {"seed", round}});
    EXPECT_TRUE(eventually([&] { return broker_.device().free() < (kPool - mebibytes(100)).count; }));
    one->kill();
    expect_rest();
  }
  auto last = client_with(kPool);
  EXPECT_TRUE(succeeded(last->check("a", 0)));
}

TEST_F(AllocatorProcess, ProgramThatEndsWithoutFreeingLeavesNoCharge) {
  auto one = allocating();
  allocate(*one, mebibytes(100));
  expect_rest_after(*one);
}

TEST_F(AllocatorProcess, TwoProcessesNeverGetMoreThanThePoolAndLoseNothing) {
  auto one = allocating({{"idle_ms", 50}}), two = allocating({{"idle_ms", 50}});
  one->tell({{"do", "churn"}, {"steps", 3000}, {"seed", 1}});
  two->tell({{"do", "churn"}, {"steps", 3000}, {"seed", 2}});
  EXPECT_TRUE(succeeded(one->answer()));
  EXPECT_TRUE(succeeded(two->answer()));
  EXPECT_TRUE(eventually([&] { return broker_.device().free() == kPool.count; })) << broker_.unrest();
  expect_rest_after(*one, *two);
}

TEST_F(AllocatorProcess, MemoryStaysUsableWithoutABroker) {
  client_timeout_ = std::chrono::seconds(1);
  auto one = allocating();
  const auto at = allocate(*one, mebibytes(10));
  EXPECT_TRUE(succeeded(write(*one, at, mebibytes(10), 9)));
  broker_.kill();
  EXPECT_TRUE(failed_with(one->ask({{"do", "allocate"}, {"bytes", mebibytes(100).count}}), "UNAVAILABLE"));
  EXPECT_TRUE(succeeded(check(*one, at, mebibytes(10), 9)));
  free(*one, at, mebibytes(10));
  free(*one, allocate(*one, mebibytes(10)), mebibytes(10));
  EXPECT_TRUE(succeeded(one->ask({{"do", "end_allocator"}})));
  one->kill();
}

}  // namespace
}  // namespace gpumem::test
