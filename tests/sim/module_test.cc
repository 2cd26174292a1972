// Modules and libraries: what their variables take, and when it is free again.
#include <cuda.h>

#include <fstream>

#include "tests/sim/memory/pool_support.h"
#include "tests/support/device_code.h"

namespace gpumem::sim::test {
namespace {

using gpumem::test::elf_code;
using gpumem::test::fat_binary;

class ModuleCalls : public SimTest {};

TEST_IN_CONTEXT(ModuleCalls, VariablesTakeMemoryInPagesUntilTheyAreUnloaded) {
  const std::uint64_t before = memory_left();
  const std::string code = elf_code({{".nv.global", 100'000}});
  const std::string fat = fat_binary({{.architecture = 90, .code = code}});
  CUmodule module = nullptr, other = nullptr, third = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, code.data()), CUDA_SUCCESS);
  EXPECT_EQ(memory_left(), before - 2UL * 65536);
  EXPECT_CU(cuModuleLoadFatBinary(&other, fat.data()));
  EXPECT_CU(cuModuleLoadDataEx(&third, code.data(), 0, nullptr, nullptr));
  EXPECT_EQ(memory_left(), before - 6UL * 65536);
  EXPECT_CU(cuModuleUnload(module));
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CU(cuModuleUnload(other));
  EXPECT_CU(cuModuleUnload(third));
  EXPECT_EQ(memory_left(), before);
  const std::string large = elf_code({{".nv.global", before + 1}});
  EXPECT_EQ(cuModuleLoadData(&module, large.data()), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuModuleLoadData(&module, ".version 8.0"), CUDA_ERROR_NOT_SUPPORTED) << "nothing compiles it";
  EXPECT_EQ(cuModuleLoad(&module, "/nonexistent"), CUDA_ERROR_FILE_NOT_FOUND);
}

#if CUDA_VERSION >= 12000
CUresult make_context(CUcontext* out) {
#if CUDA_VERSION >= 13000
  return cuCtxCreate(out, nullptr, 0, 0);
#else
  return cuCtxCreate(out, 0, 0);
#endif
}

TEST_IN_CONTEXT(ModuleCalls, LibrariesOutliveAContextAndTheirVariablesDoNot) {
  const std::uint64_t before = memory_left();
  const std::string code = elf_code({{".nv.global", 65536}});
  const std::string name = "/tmp/gpumem-library-" + std::to_string(::getpid());
  std::ofstream(name, std::ios::binary) << code;
  CUcontext own = nullptr;
  ASSERT_CU(make_context(&own));
  CUlibrary library = nullptr, of_file = nullptr;
  CUmodule module = nullptr;
  EXPECT_CU(cuLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  EXPECT_CU(cuLibraryLoadFromFile(&of_file, name.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  EXPECT_CU(cuModuleLoad(&module, name.c_str()));
  EXPECT_CU(cuLibraryUnload(of_file));
  EXPECT_CU(cuCtxDestroy(own));
  EXPECT_EQ(memory_left(), before);
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CU(cuLibraryUnload(library));
  EXPECT_EQ(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
  ::unlink(name.c_str());
}
#endif

}  // namespace
}  // namespace gpumem::sim::test
