// The parts of the scenario of regions in which they are made once, and redeemed.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/eventually.h"
#include "tests/survive/crash_books.h"
#include "tests/survive/region_scenario.h"

namespace gpumem::test {
namespace {

constexpr Bytes kOneRegion = mebibytes(2);  // as RegionScenario publishes them

Json asking_for(const char* name) {
  return {{"do", "map_or_reserve"}, {"region", name}, {"import", name}, {"wait_ms", 2000}};
}

// A request succeeds, unless the client has died.
void expect_settled(const Json& answer, const char* why) {
  EXPECT_TRUE(came_off(answer) || failed_as(answer, "gone")) << why << ": " << answer;
}

}  // namespace

// ---- Reservations ----

// First her mate is to make it, and lets it be; then ann is.
void RegionScenario::make_once() {
  come_to("a region that is made once", [&] {
    const Json first = mate_.ask(asking_for("once"));
    ann_.tell(asking_for("once"));
    release(mate_, first);
    const Json second = ann_.await();
    expect_settled(second, "her mate has released it, or died");
    mate_.tell(asking_for("once"));
    const bool is_made = second.contains("reservation") && publish(ann_, "once", 6);
    if (!is_made) release(ann_, second);
    const Json third = mate_.await();
    expect_settled(third, "ann has published it, released it, or died");
    release(mate_, third);
    const bool is_mapped = third.contains("version") && note_mapped(mate_, "once", 6);
    if (is_made && is_mapped && map(bob_, "once", 6)) return true;
    for (CrashActor* one : {&ann_, &mate_}) unmap(*one, "once");
    ann_.close("once");
    return false;
  });
  outlive_publisher("once");
}

void RegionScenario::release(CrashActor& holder, const Json& answer) {
  if (answer.contains("reservation"))
    holder.ask({{"do", "release_reservation"}, {"reservation", answer.at("reservation")}});
}

void RegionScenario::check_no_reservation(CrashActor& next) {
  const Json answer = next.insist({{"do", "map_or_reserve"}, {"region", "once"}, {"wait_ms", 0}});
  EXPECT_TRUE(answer.contains("reservation")) << "nobody who has ended has it: " << answer;
}

}  // namespace gpumem::test
