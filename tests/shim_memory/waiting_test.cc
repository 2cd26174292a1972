// Memory that others hold: who waits, for how long, and what the account says.
#include <cstring>

#include "client/shim/account_page.h"
#include "tests/shim_memory/scene.h"

namespace gpumem::shim::test {
namespace {

using WaitingTest = ShimMemory;

SCENE(HoldsMost) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 160 * kMiB));
  tell();
  await();
  EXPECT_CU(calls::cuMemFree_v2(at));
  tell();
  await();
}

SCENE(WantsMost) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 160 * kMiB));
  byte_at(at) = 1;
  EXPECT_CU(calls::cuMemFree_v2(at));
}

AccountPage account_of(const gpumem::test::TemporaryFolder& folder, pid_t pid) {
  const std::string bytes = gpumem::test::read_file(folder / ("account." + std::to_string(pid)));
  AccountPage page{};
  EXPECT_EQ(bytes.size(), sizeof page);
  std::memcpy(&page, bytes.data(), std::min(bytes.size(), sizeof page));
  EXPECT_EQ(page.magic, kAccountMagic);
  return page;
}

TEST_F(WaitingTest, OfTwoThatDoNotFitTogetherOneWaitsAndFinishes) {
  const gpumem::test::TemporaryFolder accounts;
  Actor holder = actor("HoldsMost");
  holder.await();
  Actor waiter =
      actor("WantsMost", {{"GPUMEM_WAIT", "10m"}, {"GPUMEM_ACCOUNT_FOLDER", accounts.path().string()}});
  EXPECT_TRUE(gpumem::test::eventually([&] { return broker_.device().waiting() == 1; }));
  holder.tell();
  EXPECT_TRUE(waiter.succeeds()) << waiter.output();
  const AccountPage page = account_of(accounts, waiter.child().pid());
  EXPECT_EQ(page.peak_bytes, 160 * kMiB);
  EXPECT_GT(page.waited_ns, 0U);
  EXPECT_EQ(page.denials, 0U);
}

SCENE(AsksForLessAndLess) {
  start();
  CUdeviceptr at = 0;
  std::uint64_t size = 200 * kMiB;
  CUresult result = calls::cuMemAlloc_v2(&at, size);
  for (; result == CUDA_ERROR_OUT_OF_MEMORY; result = calls::cuMemAlloc_v2(&at, size)) size = size / 10 * 9;
  EXPECT_CU(result);
  EXPECT_LE(size, 64 * kMiB);
  EXPECT_GT(size, 56 * kMiB) << "what is left is found";
}

TEST_F(WaitingTest, CascadeOfRequestsWaitsOnceAndFindsWhatIsLeft) {
  const gpumem::test::TemporaryFolder accounts;
  Actor holder = actor("HoldsMost");
  holder.await();
  Actor asker = actor("AsksForLessAndLess",
                      {{"GPUMEM_WAIT", "200ms"}, {"GPUMEM_ACCOUNT_FOLDER", accounts.path().string()}});
  EXPECT_TRUE(asker.succeeds()) << asker.output();
  const AccountPage page = account_of(accounts, asker.child().pid());
  EXPECT_GT(page.denials, 5U);
  EXPECT_GE(page.waited_ns, 200'000'000U);
  EXPECT_GT(page.last_denied_bytes, 56 * kMiB);
  const std::string said = asker.output();
  EXPECT_NE(said.find("cuMemAlloc of 200MiB is refused: "), std::string::npos) << said;
  EXPECT_NE(said.find(std::to_string(holder.child().pid())), std::string::npos)
      << "it names who holds the memory: " << said;
  EXPECT_EQ(said.find("is refused", said.find("is refused") + 1), std::string::npos) << "once: " << said;
}

}  // namespace
}  // namespace gpumem::shim::test
