// The contract with a driver (tests/contract/driver), through the drop-in driver with a broker behind it.
// Differences are listed in contract_differences.txt, with the reason. A listed difference that does not
// occur is an error, too.
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/shim_programs/stage.h"

namespace gpumem::shim_programs {
namespace {

/// The machine of the contract's own tests. The memory outside the pool serves contexts, and the broker's
/// proofs that memory is free.
class Contract : public ShimPrograms {
 protected:
  Contract() : ShimPrograms(of_machine("1x256MiB,1x64MiB", "50%")) {}

  /// One of `kParts` parts of the program: what ctest's patience has room for.
  static constexpr int kParts = 24;
  gpumem::test::Outcome run_part(int part) const {
    return gpumem::test::run({.program = GPUMEM_TEST_CONTRACT,
                              .arguments = {"--gtest_brief=1", "--gtest_filter=-Stress.*"},
                              .environment = {{"GPUMEM_DRIVER_DIR", GPUMEM_TEST_SHIM},
                                              {"GPUMEM_REAL_LIBCUDA", broker_.driver_folder()},
                                              {"GPUMEM_RUNTIME_DIR", broker_.folder()},
                                              {"GPUMEM_WAIT", "2s"},
                                              {"GPUMEM_LIMIT", "1GiB"},  // a slice, and no monitor
                                              {"GPUMEM_CONTRACT_FIGURES", "own"},
                                              {"GTEST_TOTAL_SHARDS", std::to_string(kParts)},
                                              {"GTEST_SHARD_INDEX", std::to_string(part)}}});
  }

  /// The tests that failed, in what the program has said.
  static std::set<std::string> failed_in(const std::string& said) {
    std::set<std::string> failed;
    const std::string mark = "[  FAILED  ] ";
    for (auto at = said.find(mark); at != std::string::npos; at = said.find(mark, at + 1)) {
      std::istringstream words(said.substr(at + mark.size(), 200));
      std::string name;
      words >> name;
      if (name.find('.') != std::string::npos) failed.insert(name.substr(0, name.find_last_not_of(',') + 1));
    }
    return failed;
  }

  static std::set<std::string> listed() {
    std::set<std::string> names;
    std::ifstream file(GPUMEM_TEST_DIFFERENCES);
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("  ")) names.insert(line.substr(2));
    }
    return names;
  }
};

TEST_F(Contract, HoldsThroughTheShimExceptForListedTests) {
  std::set<std::string> differ;
  std::string said;
  for (int part = 0; part < kParts; ++part) {
    const gpumem::test::Outcome outcome = run_part(part);
    const auto failed = failed_in(outcome.output);
    differ.insert(failed.begin(), failed.end());
    EXPECT_EQ(outcome.status != 0, !failed.empty()) << outcome.output;
    said += outcome.output;
  }
  const auto known = listed();
  ASSERT_FALSE(known.empty());
  for (const std::string& one : differ)
    EXPECT_TRUE(known.contains(one)) << one << " differs and is not listed";
  for (const std::string& one : known)
    EXPECT_TRUE(differ.contains(one)) << one << " is listed and does not differ";
  if (HasFailure()) std::cerr << said;
  EXPECT_TRUE(comes_to_rest());
}

}  // namespace
}  // namespace gpumem::shim_programs
