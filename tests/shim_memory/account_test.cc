#include "client/shim/memory/session/account.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "tests/support/temporary_folder.h"

namespace gpumem::shim::test {
namespace {

AccountPage page_in(const gpumem::test::TemporaryFolder& folder) {
  const std::string bytes = gpumem::test::read_file(folder / ("account." + std::to_string(::getpid())));
  AccountPage page{};
  EXPECT_EQ(bytes.size(), sizeof page);
  std::memcpy(&page, bytes.data(), std::min(bytes.size(), sizeof page));
  return page;
}

TEST(AccountTest, PageShowsPeakWaitsAndDenials) {
  const gpumem::test::TemporaryFolder folder;
  static auto* const account = new Account;  // as in a process, it stays
  ASSERT_TRUE(account->show_in(folder.path()));
  account->used(mebibytes(5));
  account->freed(mebibytes(4));
  account->used(mebibytes(2));
  account->waited(std::chrono::milliseconds(3));
  account->denied(mebibytes(7));
  account->denied(mebibytes(6));
  const AccountPage page = page_in(folder);
  EXPECT_EQ(page.magic, kAccountMagic);
  EXPECT_EQ(page.peak_bytes, mebibytes(5).count);
  EXPECT_EQ(page.waited_ns, 3'000'000U);
  EXPECT_EQ(page.denials, 2U);
  EXPECT_EQ(page.last_denied_bytes, mebibytes(6).count);
  EXPECT_EQ(account->in_use(), mebibytes(3));
}

TEST(AccountTest, FiguresAreKeptWhereThePageCannotBe) {
  Account account;
  EXPECT_FALSE(account.show_in("/proc/no_such_folder"));
  account.used(mebibytes(1));
  EXPECT_EQ(account.peak(), mebibytes(1));
}

// A file that may not grow is like a full disk.
[[noreturn]] void show_without_room(const gpumem::test::TemporaryFolder& folder) {
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_FSIZE, &none);
  Account account;
  const bool shown = account.show_in(folder.path()).has_value();
  account.used(mebibytes(1));
  const auto file = folder.path() / ("account." + std::to_string(::getpid()));
  std::_Exit(shown || !std::filesystem::is_empty(file) ? 1 : 0);
}

TEST(AccountTest, WithoutRoomForThePageTheProcessGoesOnAndLeavesAnEmptyFile) {
  const gpumem::test::TemporaryFolder folder;
  EXPECT_EXIT(show_without_room(folder), testing::ExitedWithCode(0), "");
}

TEST(BudgetTest, IsNeverPassed) {
  Account account;
  Budget budget(mebibytes(10), account);
  ASSERT_TRUE(budget.reserve(mebibytes(10)));
  EXPECT_FALSE(budget.reserve({1}));
  EXPECT_FALSE(budget.reserve({~std::uint64_t{0}}));
  budget.granted(mebibytes(10));
  EXPECT_EQ(budget.used(), mebibytes(10));
  budget.discharge(mebibytes(10));
  EXPECT_EQ(account.in_use(), Bytes{});
  EXPECT_EQ(account.peak(), mebibytes(10));
}

TEST(BudgetTest, WhatIsRefusedIsNotOfThePeak) {
  Account account;
  Budget budget(mebibytes(10), account);
  ASSERT_TRUE(budget.reserve(mebibytes(8)));
  budget.unreserve(mebibytes(8));
  EXPECT_EQ(budget.reserve_up_to(mebibytes(12)), mebibytes(10));
  budget.unreserve(mebibytes(9));
  budget.granted(mebibytes(1));
  EXPECT_EQ(budget.used(), mebibytes(1));
  EXPECT_EQ(account.peak(), mebibytes(1));
}

TEST(AccountTest, FileThatIsThereMayBeOfAProcessThatLivesAndStaysAsItIs) {
  const gpumem::test::TemporaryFolder folder;
  Account first;
  Account second;
  ASSERT_TRUE(first.show_in(folder.path()));
  first.used(mebibytes(3));
  ASSERT_TRUE(second.show_in(folder.path()));
  second.used(mebibytes(5));
  first.used(mebibytes(1));  // its page is as large as it was
  EXPECT_EQ(first.peak(), mebibytes(4));
  EXPECT_EQ(second.peak(), mebibytes(5));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / ("account." + std::to_string(::getpid()) + ".1")));
}

}  // namespace
}  // namespace gpumem::shim::test
