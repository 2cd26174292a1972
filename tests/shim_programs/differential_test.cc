// Random calls (differential.cc) have the same results with the drop-in driver and without it. The program
// leaves out the differences that docs/shim.md names.
#include <sstream>

#include "tests/shim_programs/stage.h"

namespace gpumem::shim_programs {
namespace {

class Differential : public ShimPrograms, public testing::WithParamInterface<unsigned> {
 protected:
  // Half of the device is for the program that is run without the drop-in driver.
  Differential() : ShimPrograms(of_machine("1x1GiB", "50%")) {}

  void same_answers(const std::string& steps) {
    const Words words{"makes_random_calls", std::to_string(GetParam()), steps};
    auto plain = options_of(words, {{"LD_LIBRARY_PATH", broker_.driver_folder()}}, Way::kPath);
    const auto wanted = gpumem::test::run(plain);
    ASSERT_EQ(wanted.status, 0) << wanted.output;
    std::istringstream expected(wanted.output);
    std::istringstream found(expect(words));
    std::string theirs, ours;
    while (std::getline(expected, theirs)) {
      ASSERT_TRUE(std::getline(found, ours)) << "instead of: " << theirs;
      ASSERT_EQ(ours, theirs);
    }
    EXPECT_FALSE(std::getline(found, ours)) << ours;
    EXPECT_TRUE(comes_to_rest());
  }
};

INSTANTIATE_TEST_SUITE_P(Seeds, Differential, testing::Range(1U, 5U));
TEST_P(Differential, RandomCallsAnswerAsWithoutTheDropInDriver) { same_answers("400"); }

using LongDifferential = Differential;
INSTANTIATE_TEST_SUITE_P(Seeds, LongDifferential, testing::Range(100U, 160U));
TEST_P(LongDifferential, RandomCallsAnswerAsWithoutTheDropInDriver) { same_answers("1500"); }

}  // namespace
}  // namespace gpumem::shim_programs
