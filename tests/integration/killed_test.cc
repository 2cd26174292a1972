// Clients killed at random moments of their work cost nobody anything. GPUMEM_TEST_ROUNDS: how many.
#include <cstdlib>
#include <random>

#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

int rounds() {
  const char* set = std::getenv("GPUMEM_TEST_ROUNDS");
  return set != nullptr ? std::atoi(set) : 15;
}

struct LongKilled : BrokerTest {
  std::unique_ptr<ClientProcess> storm(unsigned seed) {
    return std::make_unique<ClientProcess>(broker_.folder(),
                                           ClientOptions{.arguments = {"storm", std::to_string(seed)}});
  }
  // A number of questions to the broker: somewhere between a client's first system call and its tenth
  // session.
  void let_some_time_pass(std::mt19937& random) {
    for (auto left = random() % 1000; left > 0; --left) static_cast<void>(broker_.status());
  }
};

TEST_F(LongKilled, ClientsLeaveNoChargeNoSessionNoDescriptorAndNoThread) {
  std::mt19937 random(std::random_device{}());
  std::size_t descriptors = 0, threads = 0;
  for (int round = 0; round < rounds(); ++round) {
    const auto seed = static_cast<unsigned>(random());
    SCOPED_TRACE("round " + std::to_string(round) + ", seed " + std::to_string(seed));
    auto one = storm(seed);
    auto two = storm(seed + 1);
    let_some_time_pass(random);
    one->kill();
    EXPECT_TRUE(two->child().running()) << "exit status " << two->child().wait();
    let_some_time_pass(random);
    two->kill();
    expect_rest();
    if (round == 2) descriptors = broker_.open_descriptors().size(), threads = broker_.threads();
    if (round <= 2) continue;  // gRPC makes some things when it first needs them
    EXPECT_TRUE(eventually([&] { return broker_.open_descriptors().size() <= descriptors; }))
        << testing::PrintToString(broker_.open_descriptors());
    EXPECT_LE(broker_.threads(), threads + 4) << "gRPC's pool breathes";
    if (HasFailure()) return;
  }
  auto last = client_with(kPool);
  EXPECT_TRUE(succeeded(last->check("a", 0)));
}

TEST_F(LongKilled, ClientsDoNotDisturbOneThatWorks) {
  std::mt19937 random(std::random_device{}());
  auto worker = client_with(mebibytes(64));
  EXPECT_TRUE(succeeded(worker->write("a", 0x11)));
  for (int round = 0; round < rounds(); ++round) {
    auto other = storm(static_cast<unsigned>(random()));
    let_some_time_pass(random);
    other->kill();
    EXPECT_TRUE(succeeded(worker->ask({{"do", "ping"}})));
  }
  EXPECT_TRUE(succeeded(worker->check("a", 0x11)));
  EXPECT_TRUE(eventually([&] { return broker_.device().free() == (kPool - mebibytes(64)).count; }))
      << broker_.unrest();
  EXPECT_EQ(broker_.sessions().size(), 1U);
}

TEST_F(LongKilled, ClientWithAllOfThePoolGivesItBackEveryTime) {
  for (int round = 0; round < rounds(); ++round) {
    auto one = client_with(kPool);
    EXPECT_EQ(broker_.device().free(), 0U);
    one->tell({{"do", "crash"}});
    EXPECT_EQ(one->child().wait(), -SIGKILL);
    EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
  }
  expect_rest();
}

}  // namespace
}  // namespace gpumem::test
