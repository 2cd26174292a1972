#include "tests/survive/region_scenario.h"

#include <gtest/gtest.h>

#include "tests/support/eventually.h"
#include "tests/survive/crash_books.h"

namespace gpumem::test {
namespace {

constexpr Bytes kRegion = mebibytes(2);

const Json kKept{{"keep", true}};

}  // namespace

RegionScenario::RegionScenario(const CrashPlan& plan, Part part, StandInManager* manager)
    : manager_(manager), part_(part), stage_(plan, manager) {}

std::vector<RegionScenario::Step> RegionScenario::steps() const {
  using Self = RegionScenario;
  switch (part_) {
    case Part::kLife: return {&Self::share, &Self::wait, &Self::keep, &Self::adopt, &Self::expire};
    case Part::kReservations: return {&Self::make_once};
  }
  return {};
}

void RegionScenario::play() {
  for (CrashActor* one : {&ann_, &mate_, &bob_}) one->enter();
  EXPECT_TRUE(eventually([&] {
    for (const Step step : steps()) (this->*step)();
    check_books();
    stage_.mend();
    return stage_.has_come_true() || testing::Test::HasFailure();
  })) << "nobody came by "
      << stage_.missing();
}

// ---- What they do ----

void RegionScenario::share() {
  come_to("a shared region", [&] {
    return publish(ann_, "weights", 1) && map(mate_, "weights", 1) && map(bob_, "weights", 1) &&
           came_off(ann_.ask({{"do", "remove_region"}, {"region", "weights"}})) &&
           failed_as(bob_.ask(mapping_of("weights")), "NOT_FOUND");
  });
  outlive_publisher("weights");
}

// A region that is published while nobody waits, because a process has died, is published again.
void RegionScenario::wait() {
  Json brief = mapping_of("nothing"), patient = mapping_of("later");
  brief["wait_ms"] = 1;
  patient["wait_ms"] = 2000;
  come_to("a region that is waited for", [&] {
    if (!failed_as(mate_.ask(brief), "DEADLINE_EXCEEDED")) return mate_.insist({{"do", "ping"}}), false;
    bob_.insist({{"do", "ping"}});
    bob_.tell(patient);
    const bool there = publish(ann_, "later", 2);
    const bool mapped = came_off(bob_.await()) && note_mapped(bob_, "later", 2);
    return there && mapped;
  });
  verify();
  ann_.close("later");
  verify();
  unmap(bob_, "later");
}

void RegionScenario::keep() {
  come_to("a kept region", [&] {
    if (!publish(ann_, "kept", 3, kKept)) return false;
    ann_.close("kept");
    return map(bob_, "kept", 3) && map(mate_, "kept", 3);
  });
  verify();
  for (CrashActor* reader : {&mate_, &bob_}) unmap(*reader, "kept");
}

void RegionScenario::adopt() {
  come_to("an adopted region", [&] {
    if (!publish(ann_, "adopted", 4, kKept)) return false;
    ann_.close("adopted");
    return map(mate_, "adopted", 4, {{"adopt", true}}) && map(bob_, "adopted", 4);
  });
  verify();
  for (CrashActor* reader : {&mate_, &bob_}) unmap(*reader, "adopted");
}

// By its time, and by that after the last process has left it.
void RegionScenario::expire() {
  const std::pair<std::string, Json> both[] = {{"lingers", {{"keep", true}, {"linger_ms", 1}}},
                                               {"brief", {{"life_ms", 1}}}};
  for (const auto& one : both) {  // clang 14 captures no bindings
    const std::string& name = one.first;
    come_to("a region that expires", [&] { return publish(ann_, name, 5, one.second); });
    ann_.close(name);
    come_to("its end", [&] {
      const Json answer = mate_.ask(mapping_of(name));
      mate_.insist({{"do", "close_import"}, {"import", name}});
      return failed_as(answer, "NOT_FOUND");
    });
  }
}

// ---- How ----

bool RegionScenario::publish(CrashActor& who, const std::string& name, int value, const Json& more) {
  Json request{{"do", "publish"}, {"slice", name}, {"region", name}, {"sharing", 2}};
  request.update(more);
  return came_off(who.ask({{"do", "open"}, {"slice", name}, {"device", ""}, {"limit", 0}})) &&
         who.try_to_grow(name, kRegion, value) && came_off(who.ask(request));
}

Json RegionScenario::mapping_of(const std::string& name) {
  return {{"do", "map_region"}, {"import", name}, {"region", name}, {"owner", "ann"}};
}

bool RegionScenario::map(CrashActor& reader, const std::string& name, int value, const Json& more) {
  Json request = mapping_of(name);
  request.update(more);
  return came_off(reader.ask(request)) && note_mapped(reader, name, value);
}

bool RegionScenario::note_mapped(CrashActor& reader, const std::string& name, int value) {
  mapped_.push_back({&reader, reader.pid(), name, value});
  verify();
  return reader.is_process(mapped_.back().pid);
}

void RegionScenario::unmap(CrashActor& reader, const std::string& name) {
  std::erase_if(mapped_, [&](const Mapping& one) { return one.reader == &reader && one.name == name; });
  reader.insist({{"do", "close_import"}, {"import", name}});
}

void RegionScenario::outlive_publisher(const std::string& name) {
  verify();
  ann_.close(name);  // its memory is her mate's from now on
  verify();
  for (CrashActor* reader : {&bob_, &mate_}) unmap(*reader, name);
}

void RegionScenario::verify() {
  for (const Mapping& one : mapped_) {
    if (!one.reader->is_process(one.pid)) continue;
    const Json answer = one.reader->ask({{"do", "check"}, {"import", one.name}, {"value", one.value}});
    EXPECT_TRUE(came_off(answer) || failed_as(answer, "gone"))
        << one.reader->name() << ", " << one.name << ": not " << one.value;
  }
}

void RegionScenario::come_to(const char* what, const std::function<bool()>& attempt) {
  EXPECT_TRUE(eventually([&] {
    for (CrashActor* one : {&ann_, &mate_, &bob_}) one->insist({{"do", "ping"}});
    if (attempt()) return true;
    verify();
    for (const Mapping& one : std::vector(mapped_)) unmap(*one.reader, one.name);
    return false;
  })) << what;
}

void RegionScenario::check_books() {
  std::string wrong;
  EXPECT_TRUE(eventually([&] {
    stage_.mend();
    wrong = "there are none";
    const auto books = read_books(stage_.broker().folder());
    if (books) wrong = wrong_in(*books);
    return wrong.empty();
  })) << wrong;
}

// ---- Afterwards ----

// Kept ones, of attempts that did not come off, too.
void RegionScenario::remove_all() {
  EXPECT_TRUE(eventually([&] {
    const std::string folder = stage_.broker().folder();
    auto monitor = cli::Monitor::connect(folder);
    if (!monitor) return false;
    const auto regions = monitor->regions("");
    if (!regions) return false;
    for (const v1::RegionInfo& one : regions->regions())
      (void)cli::Monitor::remove_region(folder, one.owner(), one.name(), one.version());
    return regions->regions().empty();
  }));
}

void RegionScenario::check_rest() {
  EXPECT_TRUE(eventually([&] { return stage_.broker().at_rest(); })) << stage_.broker().unrest();
  EXPECT_EQ(stage_.broker().device().pool(), CrashStage::kPool.count);
  EXPECT_EQ(stage_.broker().used_of_driver(), CrashStage::kPool.count) << "what the driver has given out";
}

void RegionScenario::check_promises() {
  stage_.mend();
  verify();
  mapped_.clear();
  for (CrashActor* one : {&ann_, &mate_, &bob_}) one->leave();
  remove_all();
  check_rest();
  CrashActor next(stage_, "next", CrashStage::kAnn);
  next.enter();
  bob_.enter();
  check_no_reservation(next);
  for (const char* name : {"weights", "later", "kept", "adopted", "state", "once", "second"}) {
    EXPECT_TRUE(publish(next, name, 9)) << name << " can be published anew";
    EXPECT_TRUE(map(bob_, name, 9)) << name;
  }
  mapped_.clear();
  for (CrashActor* one : {&bob_, &next}) one->leave();
  check_rest();
}

}  // namespace gpumem::test
