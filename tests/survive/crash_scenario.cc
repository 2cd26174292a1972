#include "tests/survive/crash_scenario.h"

#include <gtest/gtest.h>

#include "tests/support/eventually.h"

namespace gpumem::test {

CrashScenario::CrashScenario(const CrashPlan& plan) : stage_(plan) {}

void CrashScenario::play() {
  for (CrashActor* one : {&ann_, &mate_, &bob_, &cat_}) one->enter();
  ann_.grow("a", mebibytes(12), 1);
  bob_.grow("a", mebibytes(8), 2);
  ann_.shrink("a", mebibytes(6));
  ann_.verify();
  ann_.grow("a", mebibytes(12), 3);
  share(4);
  stop_sharing();
  set_quota();
  share(5);
  stage_.restart();
  for (CrashActor* one : {&ann_, &mate_, &bob_, &cat_}) {
    one->insist({{"do", "ping"}});
    one->verify();
  }
  check_quota();
  check_books();
  stop_sharing();
  claim_the_guarantee();
  for (CrashActor* one : {&ann_, &bob_}) one->leave();
  for (CrashActor* one : {&mate_, &cat_}) one->end();
}

// The end of the broker's grace for returning clients takes the longest.
void CrashScenario::await_plan() {
  EXPECT_TRUE(eventually([&] {
    stage_.mend();
    return stage_.has_come_true();
  })) << "nobody came by "
      << stage_.missing();
}

// Anew, if one of them or the broker dies meanwhile: a handle does not survive its broker.
void CrashScenario::share(int value) {
  Json last;
  EXPECT_TRUE(eventually([&] {
    last = ann_.ask({{"do", "open"}, {"slice", "s"}, {"device", ""}, {"limit", 0}});
    if (!last.at("ok").get<bool>()) return ann_.insist({{"do", "ping"}}), false;
    if (!ann_.try_to_grow("s", mebibytes(2), value)) return ann_.close("s"), false;
    last = ann_.ask({{"do", "export"}, {"slice", "s"}});
    if (last.at("ok").get<bool>())
      last = mate_.ask({{"do", "import"}, {"import", "s"}, {"handle", last.at("handle")}});
    if (last.at("ok").get<bool>()) last = mate_.ask({{"do", "check"}, {"import", "s"}, {"value", value}});
    if (last.at("ok").get<bool>()) return true;
    mate_.insist({{"do", "close_import"}, {"import", "s"}});
    ann_.close("s");
    return false;
  })) << last;
}

void CrashScenario::stop_sharing() {
  mate_.insist({{"do", "close_import"}, {"import", "s"}});
  ann_.close("s");
}

Outcome CrashScenario::gpumem(std::vector<std::string> arguments) {
  return run(stage_.broker().command(std::move(arguments)));
}

void CrashScenario::set_quota() {
  Outcome last;
  EXPECT_TRUE(eventually([&] {
    stage_.mend();
    last = gpumem({"quota", "set", "bob", "--weight", "7"});
    return last.status == 0;
  })) << last.output;
}

// What was answered is in force from then on.
void CrashScenario::check_quota() {
  Outcome last;
  EXPECT_TRUE(eventually([&] {
    stage_.mend();
    last = gpumem({"quota", "--json"});
    return last.status == 0;
  })) << last.output;
  const Json list = Json::parse(last.output, nullptr, false);
  ASSERT_TRUE(list.contains("quotas")) << last.output;
  for (const Json& line : list["quotas"]) {
    if (line["tenant"] == "bob") {
      EXPECT_EQ(line["weight"], 7) << line;
    }
  }
}

// Bob gives back what he does not use, which is not enough. Cat uses all that she has.
void CrashScenario::claim_the_guarantee() {
  bob_.grow("a", mebibytes(20), 6);
  bob_.insist({{"do", "in_use"}, {"slice", "a"}, {"bytes", mebibytes(4).count}});
  cat_.grow("a", mebibytes(20), 7);
  cat_.insist({{"do", "in_use"}, {"slice", "a"}, {"bytes", mebibytes(20).count}});
  ann_.grow("a", CrashStage::kGuarantee, 8);
  ann_.verify();
  if (bob_.is_there()) bob_.verify();
  check_books();
}

}  // namespace gpumem::test
