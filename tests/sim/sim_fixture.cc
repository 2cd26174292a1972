#include "tests/sim/sim_fixture.h"

#include <nvml.h>

#include <cstdlib>

#include "sim/machine/machine.h"

namespace gpumem::sim::test {

void SimTest::SetUp() {
  std::string pattern = std::filesystem::temp_directory_path() / "gpumem-sim-test.XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
  const auto created = create_machine(folder_, spec_, SIM_LIBRARIES);
  ASSERT_TRUE(created.has_value()) << created.error().message;
  ::setenv("GPUMEM_SIM_MACHINE", folder_.c_str(), 1);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
}

void SimTest::TearDown() {
  nvmlShutdown();
  ::unsetenv("GPUMEM_SIM_MACHINE");
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_TRUE(remove_machine(folder_).has_value());
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

std::uint64_t SimTest::used(unsigned device) {
  nvmlDevice_t handle{};
  nvmlMemory_t memory{};
  EXPECT_EQ(nvmlDeviceGetHandleByIndex_v2(device, &handle), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetMemoryInfo(handle, &memory), NVML_SUCCESS);
  EXPECT_EQ(memory.used + memory.free, memory.total);
  return memory.used;
}

CUmemAllocationProp properties(int device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return prop;
}

CUmemGenericAllocationHandle create(std::uint64_t size, int device) {
  const CUmemAllocationProp prop = properties(device);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_CU(cuMemCreate(&handle, size, &prop, 0));
  return handle;
}

CUdeviceptr reserve(std::uint64_t size) {
  CUdeviceptr address = 0;
  EXPECT_CU(cuMemAddressReserve(&address, size, 0, 0, 0));
  return address;
}

UniqueFd exported(CUmemGenericAllocationHandle handle) {
  int fd = -1;
  EXPECT_CU(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return UniqueFd(fd);
}

CUresult import(int fd, CUmemGenericAllocationHandle* handle) {
  return cuMemImportFromShareableHandle(handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

CUresult set_access(CUdeviceptr address, std::uint64_t size, CUmemAccess_flags flags, int device) {
  const CUmemAccessDesc desc{{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
  return cuMemSetAccess(address, size, &desc, 1);
}

CUdeviceptr mapped(CUmemGenericAllocationHandle handle, std::uint64_t size, CUmemAccess_flags flags) {
  const CUdeviceptr address = reserve(size);
  EXPECT_CU(cuMemMap(address, size, 0, handle, 0));
  EXPECT_CU(set_access(address, size, flags));
  return address;
}

}  // namespace gpumem::sim::test
