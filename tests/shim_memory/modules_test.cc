// Variables of modules and libraries, which the driver allocates when it loads them.
#include <fstream>

#include "tests/shim_memory/scene.h"
#include "tests/support/device_code.h"

namespace gpumem::shim::test {
namespace {

using gpumem::test::CodeFor;
using gpumem::test::elf_code;
using gpumem::test::fat_binary;

using ModulesTest = ShimMemory;

std::string with_variables(std::uint64_t bytes) { return elf_code({{".nv.global", bytes}}); }

SCENE(LoadsModules) {
  start();
  const std::string four = with_variables(4 * kMiB), nine = with_variables(9 * kMiB);
  CUmodule one = nullptr, two = nullptr;
  ASSERT_CU(calls::cuModuleLoadData(&one, four.data()));
  EXPECT_EQ(free_memory(), 8 * kMiB);
  EXPECT_EQ(calls::cuModuleLoadData(&two, nine.data()), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuModuleLoadDataEx(&two, nine.data(), 0, nullptr, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  const std::string fat = fat_binary({{.architecture = 90, .code = nine}});
  EXPECT_EQ(calls::cuModuleLoadFatBinary(&two, fat.data()), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuModuleLoadData(nullptr, four.data()), CUDA_ERROR_INVALID_VALUE) << "the driver's answer";
  EXPECT_EQ(calls::cuModuleLoadData(&two, ".global .b8 text[4194304];"), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(calls::cuModuleLoadData(&two, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(free_memory(), 8 * kMiB) << "what was charged for them is given up";
  tell_and_await();
  EXPECT_CU(calls::cuModuleUnload(one));
  EXPECT_NE(calls::cuModuleUnload(one), CUDA_SUCCESS) << "twice";
  EXPECT_EQ(free_memory(), 12 * kMiB);
  tell_and_await();
}

TEST_F(ModulesTest, AreChargedWithTheirVariablesBeforeTheDriverLoadsThem) {
  expect_told_of_outside("LoadsModules", 4 * kMiB, {{"GPUMEM_LIMIT", "12MiB"}, {"GPUMEM_WAIT", "10h"}});
}

SCENE(LoadsAFileAndEndsItsContext) {
  start();
  const std::string name = "/tmp/gpumem-module-" + std::to_string(::getpid());
  const std::string code = with_variables(4 * kMiB);
  std::ofstream(name, std::ios::binary) << code;
  CUcontext own = nullptr;
  ASSERT_CU(calls::cuCtxCreate_v2(&own, 0, 0));
  CUmodule module = nullptr;
  EXPECT_CU(calls::cuModuleLoad(&module, name.c_str()));
  EXPECT_EQ(free_memory(), 8 * kMiB);
#if CUDA_VERSION >= 12000
  CUlibrary library = nullptr, other = nullptr;
  EXPECT_CU(calls::cuLibraryLoadFromFile(&library, name.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  EXPECT_CU(calls::cuLibraryLoadData(&other, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  EXPECT_EQ(free_memory(), 0U);
  CUlibrary third = nullptr;
  EXPECT_EQ(calls::cuLibraryLoadFromFile(&third, name.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(calls::cuLibraryUnload(library));
  EXPECT_EQ(free_memory(), 4 * kMiB);
#endif
  EXPECT_CU(calls::cuCtxDestroy_v2(own));
  EXPECT_EQ(free_memory(), 12 * kMiB) << "they have gone with their context";
#if CUDA_VERSION >= 12000
  EXPECT_CU(calls::cuLibraryUnload(other));
  EXPECT_EQ(free_memory(), 12 * kMiB) << "and are not given back twice";
#endif
  std::filesystem::remove(name);
}

TEST_F(ModulesTest, OfFilesAndLibrariesAreChargedUntilTheyOrTheirContextEnd) {
  Actor one = actor("LoadsAFileAndEndsItsContext", {{"GPUMEM_LIMIT", "12MiB"}});
  EXPECT_TRUE(one.succeeds()) << one.output();
}

SCENE(LoadsASmallModuleWithAFullSlice) {
  start();
  CUdeviceptr all = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&all, 12 * kMiB));
  const std::string small = with_variables(kMiB), large = with_variables(2 * kMiB);
  CUmodule module = nullptr;
  EXPECT_CU(calls::cuModuleLoadData(&module, small.data()));
  EXPECT_EQ(calls::cuModuleLoadData(&module, large.data()), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(ModulesTest, WithSmallVariablesAreLoadedByAProgramWhoseLimitIsItsNeed) {
  Actor one = actor("LoadsASmallModuleWithAFullSlice", {{"GPUMEM_LIMIT", "12MiB"}});
  EXPECT_TRUE(one.succeeds()) << one.output();
}

}  // namespace
}  // namespace gpumem::shim::test
