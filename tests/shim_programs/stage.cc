#include "tests/shim_programs/stage.h"

namespace gpumem::shim_programs {

gpumem::test::ChildOptions ShimPrograms::options_of(Words words, const Environment& more, Way way) const {
  Environment environment = more;  // of two values, the first counts
  environment.emplace_back("GPUMEM_RUNTIME_DIR", broker_.folder());
  environment.emplace_back("GPUMEM_REAL_LIBCUDA", broker_.driver_folder());
  // A sanitized library cannot be loaded before the sanitizer's own.
  if (way == Way::kPath || GPUMEM_TEST_SANITIZED)
    environment.emplace_back("LD_LIBRARY_PATH", GPUMEM_TEST_SHIM);
  else
    environment.emplace_back("LD_PRELOAD", GPUMEM_TEST_SHIM "/libcuda.so.1");
  return {.program = GPUMEM_TEST_PROGRAM, .arguments = std::move(words), .environment = environment};
}

std::string ShimPrograms::expect(Words words, const Environment& more, Way way) const {
  auto one = program(std::move(words), more, way);
  EXPECT_TRUE(one.succeeds()) << one.output();
  return one.output();
}

testing::AssertionResult ShimPrograms::comes_to_rest() const {
  if (gpumem::test::eventually([this] { return broker_.at_rest(); })) return testing::AssertionSuccess();
  return testing::AssertionFailure() << broker_.unrest();
}

}  // namespace gpumem::shim_programs
