#include "daemon/core/words/denial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpumem::core {
namespace {

using testing::HasSubstr;
using testing::Not;

Denial denial(Denial::Reason reason) {
  Denial denial;
  denial.reason = reason;
  denial.device = "GPU-0";
  denial.device_name = "gpu0";
  denial.tenant = "ann";
  denial.asked = denial.asked_min = gibibytes(4);
  denial.slice_limit = gibibytes(6);
  denial.quota = {.guarantee = gibibytes(1), .limit = gibibytes(10)};
  denial.charged = gibibytes(9);
  denial.limiting_tenant = "ann";
  denial.limiting_limit = gibibytes(10);
  denial.limiting_charged = gibibytes(9);
  denial.pool = gibibytes(24);
  denial.free = gibibytes(3);
  denial.kept_for_others = gibibytes(2);
  denial.guaranteed_to_others = gibibytes(7);
  denial.charged_to_others = gibibytes(12);
  return denial;
}

TEST(DenialText, SaysWhoAskedForHowMuchOfWhat) {
  for (const auto reason : {Denial::Reason::kSliceLimit, Denial::Reason::kTenantLimit, Denial::Reason::kDebt,
                            Denial::Reason::kPoolSize, Denial::Reason::kNoMemory, Denial::Reason::kTurn}) {
    EXPECT_THAT(explain(denial(reason)), AllOf(HasSubstr("'ann'"), HasSubstr("4GiB"), HasSubstr("on gpu0")));
  }
}

TEST(DenialText, OfALimitNamesItAndWhoHoldsTheRest) {
  EXPECT_THAT(explain(denial(Denial::Reason::kSliceLimit)), HasSubstr("limit of 6GiB"));
  Denial full = denial(Denial::Reason::kTenantLimit);
  full.holders = {{{1}, 41, "train", gibibytes(5), "ann"}, {{2}, 0, "serve", gibibytes(4), "ann"}};
  EXPECT_THAT(explain(full), AllOf(HasSubstr("limit of 10GiB"), HasSubstr("9GiB are charged"),
                                   HasSubstr("(pid 41 train 5GiB, session 2 serve 4GiB)")));
}

TEST(DenialText, OfAGroupsLimitNamesTheGroup) {
  Denial full = denial(Denial::Reason::kTenantLimit);
  full.limiting_tenant = "lab";
  EXPECT_THAT(explain(full), AllOf(HasSubstr("'ann'"), HasSubstr("the limit of 'lab'"), HasSubstr("10GiB")));
}

TEST(DenialText, OfMoreThanTheWholeLimitDoesNotAskForMemoryBack) {
  Denial all = denial(Denial::Reason::kTenantLimit);
  all.asked = all.asked_min = gibibytes(11);
  EXPECT_THAT(explain(all), AllOf(HasSubstr(": 11GiB is more than the whole limit of 10GiB: ask for less, or "
                                            "ask the administrator for a higher limit"),
                                  Not(HasSubstr("give"))));
  all.limiting_tenant = "lab";
  EXPECT_THAT(explain(all), HasSubstr("the whole limit of 'lab', which the tenant belongs to, of 10GiB"));
  all.asked_min = gibibytes(1);
  EXPECT_THAT(explain(all), HasSubstr("give memory back")) << "the least fits";
}

TEST(DenialText, OfMoreThanALimitThatIsThePoolDoesNotSpeakOfHigherLimits) {
  Denial all = denial(Denial::Reason::kTenantLimit);
  all.asked = all.asked_min = gibibytes(30);
  all.limiting_limit = all.pool;
  const std::string words = explain(all);
  EXPECT_TRUE(
      words.ends_with("30GiB is more than the whole limit of 24GiB, which is the whole pool: ask for less"))
      << words;
}

TEST(DenialText, OfADebtSaysWhatIsOverWhichLimit) {
  Denial owing = denial(Denial::Reason::kDebt);
  owing.limiting_charged = gibibytes(12);
  EXPECT_THAT(explain(owing), AllOf(HasSubstr("12GiB are charged against"), HasSubstr("limit of 10GiB"),
                                    HasSubstr("give back what is over it")));
}

TEST(DenialText, OfAPartialWishNamesTheLeast) {
  Denial partial = denial(Denial::Reason::kNoMemory);
  partial.asked_min = gibibytes(1);
  EXPECT_THAT(explain(partial), HasSubstr("4GiB (at least 1GiB)"));
}

TEST(DenialText, OfATurnSaysThatThereIsMemoryAndOthersAreFirst) {
  Denial turn = denial(Denial::Reason::kTurn);
  turn.waiters_ahead = 2;
  EXPECT_THAT(explain(turn), AllOf(HasSubstr("others are first"), HasSubstr("came before: 2")));
}

TEST(DenialText, SaysWhatIsOnItsWayBackAndWhatBorrowersAreAskedFor) {
  Denial one = denial(Denial::Reason::kNoMemory);
  one.returning = gibibytes(1);
  one.asked_back = gibibytes(5);
  EXPECT_THAT(explain(one),
              AllOf(HasSubstr("1GiB are on their way back"), HasSubstr("asked to give back 5GiB")));
}

TEST(DenialText, NamesThreeHoldersAndCountsTheRest) {
  Denial full = denial(Denial::Reason::kTenantLimit);
  for (std::uint64_t i = 1; i <= 5; ++i)
    full.holders.push_back({{i}, static_cast<std::int64_t>(i), "x", kibibytes(i), "ann"});
  EXPECT_THAT(explain(full), AllOf(HasSubstr("pid 3"), Not(HasSubstr("pid 4")), HasSubstr("and 2 more")));
}

TEST(DenialText, OfThePoolNamesTheGuaranteesOfOthers) {
  EXPECT_THAT(explain(denial(Denial::Reason::kPoolSize)),
              AllOf(HasSubstr("24GiB"), HasSubstr("7GiB are guaranteed")));
}

TEST(DenialText, OfAShortageNamesEveryShareAndTheLine) {
  Denial one = denial(Denial::Reason::kNoMemory);
  EXPECT_THAT(explain(one), AllOf(HasSubstr("may not wait"), HasSubstr("pool of 24GiB"), HasSubstr("12GiB"),
                                  HasSubstr("9GiB"), HasSubstr("3GiB are free"), HasSubstr("2GiB are kept")));
  EXPECT_THAT(explain(one), Not(HasSubstr("came before")));
  one.waiters_ahead = 7;
  one.wait_limit = std::chrono::seconds(2);
  one.waited = std::chrono::milliseconds(1500);
  EXPECT_THAT(explain(one), AllOf(HasSubstr("waited 1.5 s"), HasSubstr("came before: 7")));
}

TEST(DenialCode, TellsAWaitInVainFromARefusal) {
  Denial one = denial(Denial::Reason::kNoMemory);
  EXPECT_EQ(code_of(one), Code::kResourceExhausted);
  one.waited = std::chrono::milliseconds(250);
  EXPECT_EQ(code_of(one), Code::kResourceExhausted) << "it was made to wait for what is on its way back";
  one.wait_limit = std::chrono::seconds(1);
  EXPECT_EQ(code_of(one), Code::kDeadlineExceeded);
  one.reason = Denial::Reason::kTenantLimit;
  EXPECT_EQ(code_of(one), Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace gpumem::core
