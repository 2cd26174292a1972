// Many programs on one device: the driver has memory for the context of each, or all are told why not.
#include "tests/run/fixture.h"

namespace gpumem::test {
namespace {

struct Machine {
  std::string device;
  Bytes context;
  int programs;
};
void PrintTo(const Machine& machine, std::ostream* to) { *to << machine.device; }

struct Contexts : RunTest, testing::WithParamInterface<Machine> {
  explicit Contexts(std::string config = {})
      : RunTest({.simulate = GetParam().device, .config = std::move(config)}) {}

  RunningCli begin_program(const std::string& wait, Bytes bytes = mebibytes(64)) const {
    return {{"run", "--wait", wait, "--", GPUMEM_TEST_CUDA_PROGRAM, "stays", std::to_string(bytes.count)},
            with({{"GPUMEM_SHIM_FOLDER", ""}, {"GPUMEM_SIM_CONTEXT", to_string(GetParam().context)}})};
  }
  static void quit(RunningCli& program) {
    program.tell("quit\n");
    EXPECT_EQ(program.wait(), 0) << program.said();
  }
  /// Of whoever runs the tests.
  static std::string own_tenant() { return "uid:" + std::to_string(::getuid()); }
};

TEST_P(Contexts, OfManyProgramsFindMemoryAndThePoolGrowsBack) {
  std::vector<RunningCli> programs;
  for (int i = 0; i < GetParam().programs; ++i) {
    programs.push_back(begin_program("30s"));
    if (i == 0) {  // tells how much a context takes
      ASSERT_TRUE(programs[0].has_said("ready "));
    }
  }
  for (const RunningCli& program : programs) ASSERT_TRUE(program.has_said("ready "));
  EXPECT_GT(broker_.device().contexts(), 0U) << "the pool has given way";
  EXPECT_TRUE(says(gpumem({"status"}).output, "FOR CONTEXTS"));
  EXPECT_TRUE(says(gpumem({"check"}).output, "were given to the driver for contexts of programs"));
  EXPECT_EQ(broker_.device().contexts_refused(), 0U);
  for (RunningCli& program : programs) quit(program);
  EXPECT_TRUE(eventually([&] { return broker_.device().missing() == 0; })) << broker_.device().missing();
  EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
}

struct ContextsBesideAGuarantee : Contexts {
  ContextsBesideAGuarantee() : Contexts("[[tenant]]\nname = \"ann\"\nuser = 10001\nguarantee = \"99%\"\n") {}
};

TEST_P(ContextsBesideAGuarantee, WithoutMemoryAreRefusedWithWordsInFourPlaces) {
  std::vector<RunningCli> programs;
  const auto is_refused = [&] { return programs.back().said().find("context: 2\n") != std::string::npos; };
  do {
    programs.push_back(begin_program("0s", {}));
    ASSERT_TRUE(programs.back().has_said("context: "));
  } while (!is_refused() && programs.size() < 30);
  ASSERT_TRUE(is_refused());
  const std::string words = "that the driver lacks for a context of about " + to_string(GetParam().context);
  EXPECT_TRUE(programs.back().has_said("gpumem: cuDevicePrimaryCtxRetain is refused: tenant '"));
  EXPECT_TRUE(says(programs.back().said(), words));
  EXPECT_TRUE(says(gpumem({"why", own_tenant()}).output, words));
  EXPECT_TRUE(says(gpumem({"status"}).output, "no memory for a context of a program"));
  EXPECT_TRUE(says(gpumem({"check"}).output, "no memory for a context of a program"));
  EXPECT_NE(programs.back().wait(), 0);
  programs.pop_back();
  for (RunningCli& program : programs) quit(program);
}

// A context takes more than the broker expects and than the driver has, and its job has reserved all the
// rest.
struct ContextsThatNobodyForesaw : RunTest {
  ContextsThatNobodyForesaw() : RunTest({.simulate = "1x4GiB", .config = "[broker]\nreserve = \"97%\"\n"}) {}
};

TEST_F(ContextsThatNobodyForesaw, AreMadeAtASecondAttempt) {
  RunningCli program(
      {"run", "--limit", "100%", "--wait", "30s", "--", GPUMEM_TEST_CUDA_PROGRAM, "stays", "0"},
      with({{"GPUMEM_SHIM_FOLDER", ""}, {"GPUMEM_SIM_CONTEXT", "200MiB"}}));
  ASSERT_TRUE(program.has_said("context: 0")) << program.said();
  EXPECT_EQ(program.said().find("gpumem: "), std::string::npos) << program.said();
  EXPECT_EQ(broker_.device().contexts_refused(), 0U);
  program.tell("quit\n");
  EXPECT_EQ(program.wait(), 0) << program.said();
}

TEST_F(ContextsThatNobodyForesaw, AreMadeByManyThreadsAndManyTimes) {
  RunningCli program({"run", "--", GPUMEM_TEST_CUDA_PROGRAM, "contexts", "100", "300"},
                     with({{"GPUMEM_SHIM_FOLDER", ""}}));
  EXPECT_EQ(program.wait(), 0) << program.said();
}

const auto kMachines = testing::Values(Machine{"1x24GiB", mebibytes(256), 60},  //
                                       Machine{"1x80GiB", mebibytes(524), 40});
const auto name_of = [](const auto& info) { return "Device" + info.param.device.substr(2); };
INSTANTIATE_TEST_SUITE_P(Of, Contexts, kMachines, name_of);
INSTANTIATE_TEST_SUITE_P(Of, ContextsBesideAGuarantee, kMachines, name_of);

}  // namespace
}  // namespace gpumem::test
