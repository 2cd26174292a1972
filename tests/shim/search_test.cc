// Where the shim looks for the real driver.
#include <cuda.h>
#include <dlfcn.h>
#include <nvml.h>

#include <cstdlib>

#include "client/shim/real.h"
#include "tests/shim/fixture.h"
#include "tests/support/child.h"

namespace gpumem::shim::test {
namespace {

namespace fs = std::filesystem;

class ShimSearch : public ShimTest {
 protected:
  /// Expects find_real_library to find `folder` with this environment; empty for none.
  void expect_found(const fs::path& named, const std::string& library_path, const fs::path& folder) const {
    in_process([&] {
      if (!named.empty()) ::setenv("GPUMEM_REAL_LIBCUDA", named.c_str(), 1);
      ::setenv("LD_LIBRARY_PATH", library_path.c_str(), 1);
      const RealLibrary found = find_real_library("libcuda.so.1");
      EXPECT_EQ(found.folder, folder);
      EXPECT_EQ(found.handle != nullptr, !folder.empty());
    });
  }
  /// That cuInit of the shim at `file` answers this, with this LD_LIBRARY_PATH.
  void expect_init(const fs::path& file, const std::string& library_path, CUresult result) const {
    in_process([&] {
      ::setenv("LD_LIBRARY_PATH", library_path.c_str(), 1);
      EXPECT_EQ(Opened(file).get<decltype(::cuInit)>("cuInit")(0), result);
    });
  }
};

TEST_F(ShimSearch, ANamedDriverIsTakenByItsFileOrItsFolder) {
  expect_found(machine_, "", machine_);
  expect_found(machine_ / "libcuda.so.1", SHIM_TEST_OLD_DRIVER, machine_);
  expect_found(SHIM_TEST_OLD_DRIVER, machine_, SHIM_TEST_OLD_DRIVER);
}

TEST_F(ShimSearch, ANamedDriverThatIsNoneIsNotReplacedByAnother) {
  expect_found(folder_ / "nothing" / "libcuda.so.1", machine_, {});
  expect_found(folder_ / "nothing", machine_, {});
  expect_found(SHIM_TEST_OTHER_SHIM, machine_, {});
}

TEST_F(ShimSearch, ARelativePathInADeletedFolderIsNone) {
  const fs::path deleted = folder_ / "deleted";
  fs::create_directory(deleted);
  in_process([&] {
    fs::current_path(deleted);
    fs::remove(deleted);
    ::setenv("GPUMEM_REAL_LIBCUDA", "drivers", 1);
    EXPECT_EQ(find_real_library("libcuda.so.1").handle, nullptr);
    EXPECT_EQ(find_real_library("libcuda.so.12").handle, nullptr) << "searched for in other folders, too";
  });
}

TEST_F(ShimSearch, FoldersOfTheLibraryPathAreTakenInTurn) {
  const std::string machine = machine_, old = SHIM_TEST_OLD_DRIVER;
  expect_found({}, folder_.path().string() + ":" + machine + ":" + old, machine_);
  expect_found({}, ":.:" + old + ";" + machine, old);
}

TEST_F(ShimSearch, NoShimIsTakenForADriver) {
  const fs::path shim = shim_folder() / "libcuda.so.1", linked = folder_ / "linked",
                 copied = folder_ / "copied";
  fs::create_directory(linked);
  fs::create_symlink(shim, linked / "libcuda.so.1");
  copy_shim("libcuda.so.1", copied);
  const std::string shims = shim_folder().string() + ":" + linked.string() + ":" + copied.string() + ":" +
                            SHIM_TEST_OTHER_SHIM + ":";
  for (const fs::path& file : {shim, linked / "libcuda.so.1", copied / "libcuda.so.1"}) {
    expect_init(file, shims + machine_.string(), CUDA_SUCCESS);
  }
}

TEST_F(ShimSearch, WithoutADriverThereIsNoGpuAndOneLineSaysWhatToDo) {
  const fs::path nothing = folder_ / "nothing";
  const gpumem::test::Outcome outcome = gpumem::test::run(
      {.program = SHIM_PROBE,
       .environment = {{"GPUMEM_REAL_LIBCUDA", nothing / "libcuda.so.1"},
                       {"LD_LIBRARY_PATH", shim_folder().string() + ":" + machine_.string()}}});
  EXPECT_NE(outcome.output.find("init 100 total 0 nvml 0\n"), std::string::npos) << outcome.output;
  const std::size_t line = outcome.output.find("gpumem: no NVIDIA driver");
  ASSERT_NE(line, std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("GPUMEM_REAL_LIBCUDA should be the path", line), std::string::npos)
      << outcome.output;
  EXPECT_EQ(outcome.output.find("gpumem: ", line + 1), std::string::npos) << outcome.output;
}

TEST_F(ShimSearch, WithoutADriverEveryCallSaysSo) {
  in_process([&] {
    ::setenv("GPUMEM_REAL_LIBCUDA", (folder_ / "nothing").c_str(), 1);
    const Opened shim(shim_folder() / "libcuda.so.1");
    CUdeviceptr address = 0;
    void* found = &address;
    EXPECT_EQ(shim.get<decltype(::cuInit)>("cuInit")(0), CUDA_ERROR_NO_DEVICE);
    EXPECT_EQ(shim.get<decltype(::cuMemcpyDtoD_v2)>("cuMemcpyDtoD_v2")(address, address, 1),
              CUDA_ERROR_NO_DEVICE);
    auto* const look_up = shim.get<decltype(::cuGetProcAddress)>("cuGetProcAddress");
    EXPECT_EQ(look_up("cuInit", &found, 11030, 0), CUDA_SUCCESS);
    EXPECT_EQ(reinterpret_cast<decltype(&::cuInit)>(found)(0), CUDA_ERROR_NO_DEVICE);
    EXPECT_EQ(look_up("cuNoSuchCall", &found, 11030, 0), CUDA_ERROR_NOT_FOUND);
    auto* const newer = shim.get<decltype(::cuGetProcAddress_v2)>("cuGetProcAddress_v2");
    for (const char* name : {"cuGetProcAddress", "cuMemAlloc", "cuCtxGetCurrent"}) {
      CUdriverProcAddressQueryResult status{};
      EXPECT_EQ(newer(name, &found, 12000, 0, &status), CUDA_SUCCESS) << name;
      EXPECT_EQ(file_of(found), shim_folder() / "libcuda.so.1") << name;
      EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS) << name;
    }
  });
}

TEST_F(ShimSearch, WithoutManagementLibraryItSaysSo) {
  if (::dlopen("libnvidia-ml.so.1", RTLD_LAZY) != nullptr) {
    GTEST_SKIP() << "gpumem: skipped: search: this machine has a management library";
  }
  in_process([&] {
    ::setenv("LD_LIBRARY_PATH", "", 1);
    const Opened shim(shim_folder() / "libnvidia-ml.so.1");
    EXPECT_EQ(shim.get<decltype(::nvmlInit_v2)>("nvmlInit_v2")(), NVML_ERROR_LIBRARY_NOT_FOUND);
    auto* const words = shim.get<decltype(::nvmlErrorString)>("nvmlErrorString");
    EXPECT_STREQ(words(NVML_ERROR_LIBRARY_NOT_FOUND), "NVML Shared Library Not Found");
  });
}

}  // namespace
}  // namespace gpumem::shim::test
