// The control page: who edits it, who reads it, and what a killed or foreign one leaves.
#include "sim/control/control.h"

#include <sys/mman.h>

#include <csignal>
#include <fstream>
#include <thread>
#include <vector>

#include "sim/control/costs.h"
#include "sim/control/faults.h"
#include "tests/sim/sim_fixture.h"

namespace gpumem::sim::test {
namespace {

using std::chrono::nanoseconds;
using namespace std::chrono_literals;

class ControlPage : public SimTest {
 protected:
  Machine machine() const { return load_machine(folder_).value(); }
  std::unique_ptr<Control> control() const {
    auto opened = Control::open(machine());
    EXPECT_TRUE(opened.has_value()) << opened.error().message;
    return std::move(*opened);
  }
  std::unique_ptr<ControlFile> file() const { return std::move(*ControlFile::open(machine())); }
  void add(std::string_view rule) const {
    const auto added = add_fault(machine(), rule);
    EXPECT_TRUE(added.has_value()) << added.error().message;
  }
  ActiveFault only_fault() const { return faults(machine()).value().at(0); }
};

/// The error that each of `count` calls meets.
std::vector<int> errors_of(Control& control, int count, std::string_view name = "cuMemCreate") {
  std::vector<int> errors;
  for (int i = 0; i < count; ++i) errors.push_back(control.consult(name, 1).error);
  return errors;
}

TEST_F(ControlPage, IsIdleUntilTheFirstRuleAndAfterTheLastIsCleared) {
  const auto reader = control();
  EXPECT_TRUE(reader->is_idle());
  add("cuMemCreate fail OUT_OF_MEMORY");
  EXPECT_FALSE(reader->is_idle());
  ASSERT_TRUE(clear_faults(machine()).has_value());
  EXPECT_TRUE(reader->is_idle());
  ASSERT_TRUE(set_costs(machine(), {{"cuMemMap", 2us, {}}}).has_value());
  EXPECT_FALSE(reader->is_idle());
  add("cuMemCreate kill");
  ASSERT_TRUE(clear_costs(machine()).has_value());
  EXPECT_FALSE(reader->is_idle());
  ASSERT_TRUE(clear_faults(machine()).has_value());
  EXPECT_TRUE(reader->is_idle());
}

TEST_F(ControlPage, EditsOfAnotherProcessTakeEffectWithTheNextCall) {
  const auto reader = control();
  EXPECT_EQ(reader->consult("cuMemCreate", 1).error, 0);
  in_process([this] { add("cuMemCreate fail OUT_OF_MEMORY"); });
  EXPECT_EQ(reader->consult("cuMemCreate", 1).error, 2);
  in_process([this] { EXPECT_TRUE(clear_faults(machine()).has_value()); });
  EXPECT_EQ(reader->consult("cuMemCreate", 1).error, 0);
}

TEST_F(ControlPage, NthFromAndTimesChooseAmongTheMatchingCalls) {
  const auto reader = control();
  add("cuMemCreate fail 2 nth 3");
  EXPECT_EQ(errors_of(*reader, 5), (std::vector<int>{0, 0, 2, 0, 0}));
  ASSERT_TRUE(clear_faults(machine()).has_value());
  add("cuMemCreate fail 2 from 3");
  EXPECT_EQ(errors_of(*reader, 5), (std::vector<int>{0, 0, 2, 2, 2}));
  ASSERT_TRUE(clear_faults(machine()).has_value());
  add("cuMemCreate fail 2 from 2 times 2");
  EXPECT_EQ(errors_of(*reader, 5), (std::vector<int>{0, 2, 2, 0, 0}));
  EXPECT_EQ(only_fault().matches, 5U);
  EXPECT_EQ(only_fault().hits, 2U);
}

TEST_F(ControlPage, AProbabilityHitsTheSameCallsOnEveryRun) {
  const auto reader = control();
  const auto run = [&](const std::string& rule) {
    EXPECT_TRUE(clear_faults(machine()).has_value());
    add(rule);
    return errors_of(*reader, 4000);
  };
  const auto first = run("cuMemCreate fail 2 probability 0.25 seed 7");
  EXPECT_NEAR(static_cast<double>(only_fault().hits), 1000, 120);
  EXPECT_EQ(run("cuMemCreate fail 2 probability 0.25 seed 7"), first);
  EXPECT_NE(run("cuMemCreate fail 2 probability 0.25 seed 8"), first);
}

TEST_F(ControlPage, AllProcessesCountTogether) {
  add("cuMemCreate fail 2 from 101 times 40");
  const auto count_some = [this] {
    const auto reader = control();
    errors_of(*reader, 50);
  };
  std::vector<std::unique_ptr<Process>> processes;
  for (int i = 0; i < 4; ++i) {
    processes.push_back(std::make_unique<Process>([&](Channel&) {
      std::thread other(count_some);
      count_some();
      other.join();
    }));
  }
  for (auto& process : processes) process->join();
  EXPECT_EQ(only_fault().matches, 400U);
  EXPECT_EQ(only_fault().hits, 40U);
}

TEST_F(ControlPage, ARuleOfOneProcessNeitherHitsNorCountsOthers) {
  Process process([this](Channel& channel) {
    channel.await();
    const auto reader = control();
    EXPECT_EQ(reader->consult("cuMemMap", 1).error, 205);
  });
  add("cuMemMap fail MAP_FAILED pid " + std::to_string(process.pid()));
  EXPECT_EQ(control()->consult("cuMemMap", 1).error, 0);
  process.signal_and_join();
  EXPECT_EQ(only_fault().matches, 1U);
}

TEST_F(ControlPage, RulesThatHitTheSameCallAddUp) {
  add("cuMem* delay 3ms");
  add("cuMemMap delay 2ms fail 1");
  add("cuMemMap fail 999");
  add("cuMemSetAccess kill");
  const auto reader = control();
  const Verdict map = reader->consult("cuMemMap", 1);
  EXPECT_EQ(map.error, 1);
  EXPECT_EQ(map.delay, 5ms);
  EXPECT_FALSE(map.kill);
  EXPECT_TRUE(reader->consult("cuMemSetAccess", 2).kill);
  EXPECT_EQ(reader->consult("cuInit", 3).delay, 0ms);
}

TEST_F(ControlPage, HoldsSixtyFourRulesAndSaysSo) {
  for (std::uint32_t i = 0; i < layout::kRules; ++i) add("cuMemCreate fail 2 nth " + std::to_string(i + 1));
  const auto refused = add_fault(machine(), "cuMemCreate kill");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_EQ(faults(machine()).value().size(), layout::kRules);
  EXPECT_EQ(errors_of(*control(), 65).back(), 0);
}

TEST_F(ControlPage, NewRuleStartsAtZero) {
  const auto reader = control();
  for (std::uint32_t i = 0; i < 2 * layout::kCounters; ++i) {
    add("cuMemCreate fail 2 nth 1");
    ASSERT_EQ(reader->consult("cuMemCreate", 1).error, 2) << i;
    ASSERT_TRUE(clear_faults(machine()).has_value());
  }
}

TEST_F(ControlPage, EditorKilledInTheMiddleChangesNothingAndStopsNobody) {
  add("cuMemCreate fail 2");
  Process editor([this](Channel&) {
    const auto page = file();
    (void)page->edit([&](ControlContents& contents) -> Result<void> {
      auto& spoiled = page->raw().banks[(contents.state & layout::kStateBank) ^ 1];
      spoiled.rule_count = 0xffffffff;  // half of an edit
      std::fill_n(spoiled.rules[0].call, layout::kCallLength, 'x');
      ::raise(SIGKILL);
      return {};
    });
  });
  EXPECT_TRUE(WIFSIGNALED(editor.wait()));
  const auto reader = control();
  EXPECT_EQ(reader->consult("cuMemCreate", 1).error, 2);
  add("cuMemMap fail 205");
  EXPECT_EQ(reader->consult("cuMemMap", 2).error, 205);
  EXPECT_EQ(reader->consult("cuMemCreate", 1).error, 2);
}

TEST_F(ControlPage, ReadersNeverSeeHalfAnEdit) {
  const auto page = file();
  std::thread editor([this] {
    for (int i = 1; i <= 2000; ++i) {
      (void)file()->edit([&](ControlContents& contents) -> Result<void> {
        contents.costs.assign(static_cast<std::size_t>(i % 50), {});
        for (auto& cost : contents.costs) cost.base_ps = cost.per_mib_ps = static_cast<std::uint64_t>(i);
        return {};
      });
    }
  });
  for (std::uint64_t state = 0; state / layout::kStateRevision < 2000;) {
    const ControlContents seen = page->read();
    ASSERT_GE(seen.state, state);
    state = seen.state;
    ASSERT_EQ(seen.costs.size(), state / layout::kStateRevision % 50);
    for (const auto& cost : seen.costs) ASSERT_EQ(cost.base_ps, state / layout::kStateRevision);
  }
  editor.join();
}

TEST_F(ControlPage, ForeignOrDamagedFileIsRefusedWithAMessage) {
  const auto path = machine().data_folder() / "control";
  file()->raw().magic = 0;
  const auto damaged = Control::open(machine());
  ASSERT_FALSE(damaged.has_value());
  EXPECT_NE(damaged.error().message.find("create the machine anew"), std::string::npos);
  std::ofstream(path, std::ios::trunc) << "something else\n";
  for (const auto& refused :
       {add_fault(machine(), "cuInit kill"), clear_faults(machine()), clear_costs(machine())}) {
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message.find("damaged or of another version"), std::string::npos);
  }
}

TEST_F(ControlPage, FileIsForEveryUserAndItsMakersLeaveNothingElse) {
  std::vector<std::unique_ptr<Process>> makers;
  for (int i = 0; i < 8; ++i)
    makers.push_back(std::make_unique<Process>([this](Channel&) { add("cuInit delay 1ns"); }));
  for (auto& maker : makers) maker->join();
  EXPECT_EQ(faults(machine()).value().size(), 8U);
  const auto folder = machine().data_folder();
  EXPECT_EQ(std::filesystem::status(folder / "control").permissions(), std::filesystem::perms(0666));
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_TRUE(entry.path().filename() == "control" || entry.path().filename() == "table") << entry.path();
  }
}

TEST_F(ControlPage, CostsAreOfTheCallAndOfItsBytes) {
  const auto reader = control();
  EXPECT_EQ(reader->base_cost(1), 0ns);
  const CostProfile profile = {{"cuMemCreate", 29us, 1500ns}, {"cuMem*", 1us, {}}, {"cuMemAlloc", 5us, {}}};
  ASSERT_TRUE(set_costs(machine(), profile).has_value());
  EXPECT_EQ(costs(machine()).value(), profile);
  for (const auto& [name, call, base] : {std::tuple{"cuMemCreate", 1, 29us},
                                         {"cuMemMap", 2, 1us},
                                         {"cuMemAlloc_v2", 3, 5us},
                                         {"cuInit", 4, 0us}}) {
    EXPECT_EQ(reader->consult(name, call).delay, 0ns);
    EXPECT_EQ(reader->base_cost(call), base) << name;
  }
  EXPECT_EQ(reader->cost_of_bytes(1, 2 * kMiB), 3us);
  EXPECT_EQ(reader->cost_of_bytes(1, kMiB / 2), 750ns);
  EXPECT_EQ(reader->cost_of_bytes(4, kMiB), 0ns);
  EXPECT_GT(reader->cost_of_bytes(1, ~std::uint64_t{0}), std::chrono::hours(1));
}

TEST_F(ControlPage, FaultsAndCostsDoNotTouchEachOther) {
  add("cuMemCreate fail 2 nth 2");
  EXPECT_EQ(errors_of(*control(), 1), (std::vector<int>{0}));
  ASSERT_TRUE(set_costs(machine(), {{"cuMemMap", 2us, {}}}).has_value());
  EXPECT_EQ(errors_of(*control(), 1), (std::vector<int>{2}));
  ASSERT_TRUE(clear_faults(machine()).has_value());
  EXPECT_EQ(costs(machine()).value().size(), 1U);
}

TEST(Spend, WaitsAtLeastAsLong) {
  for (const nanoseconds time :
       {nanoseconds(-1), 0ns, nanoseconds(700), nanoseconds(40us), nanoseconds(2ms)}) {
    const auto start = std::chrono::steady_clock::now();
    spend(time);
    EXPECT_GE(std::chrono::steady_clock::now() - start, time);
  }
}

}  // namespace
}  // namespace gpumem::sim::test
