// Checks that the promises hold after the broker or a client was killed, by the broker's public API alone.
#include <gtest/gtest.h>

#include "tests/support/eventually.h"
#include "tests/survive/crash_books.h"
#include "tests/survive/crash_scenario.h"

namespace gpumem::test {

void CrashScenario::check_books() {
  std::string wrong;
  EXPECT_TRUE(eventually([&] {
    stage_.mend();
    wrong = "there are none";
    const auto books = read_books(stage_.broker().folder());
    if (!books) return false;
    wrong = wrong_in(*books);
    for (CrashActor* one : {&ann_, &bob_, &cat_}) {
      const auto has = one->committed();
      if (has && charged_to(*books, one->pid()) != *has)
        wrong += one->name() + " has " + to_string(Bytes{*has}) + " and is charged " +
                 to_string(Bytes{charged_to(*books, one->pid())});
    }
    return wrong.empty();
  })) << wrong;
}

void CrashScenario::check_rest() {
  EXPECT_TRUE(eventually([&] { return stage_.broker().at_rest(); })) << stage_.broker().unrest();
  EXPECT_EQ(stage_.broker().device().pool(), CrashStage::kPool.count);
  EXPECT_EQ(stage_.broker().used_of_driver(), CrashStage::kPool.count) << "what the driver has given out";
}

void CrashScenario::check_promises() {
  ASSERT_TRUE(stage_.broker().running());
  check_rest();
  check_quota();
  CrashActor next(stage_, "next", CrashStage::kAnn);
  next.enter();
  next.grow("a", CrashStage::kGuarantee, 9);
  next.leave();
  check_rest();
  for (const CrashActor* one : {&ann_, &mate_})
    EXPECT_NE(one->ended_by(), SIGTERM) << one->name() << " was ended, who owes nothing";
}

}  // namespace gpumem::test
