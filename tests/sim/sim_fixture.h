#pragma once
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/contract/driver/processes/process.h"

namespace gpumem::sim::test {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kPage = 2 * kMiB;  ///< the simulated granularity

using contract::Channel;
using contract::in_process;
using contract::Process;

/// A machine of `spec` for one test. The test's own process never initialises CUDA (its forks could not), but
/// looks at the machine through NVML.
class SimTest : public testing::Test {
 protected:
  explicit SimTest(std::string spec = "1x64MiB") : spec_(std::move(spec)) {}
  void SetUp() override;
  void TearDown() override;

  /// Bytes in use on a device, as NVML tells them.
  static std::uint64_t used(unsigned device = 0);

  std::string spec_;
  std::filesystem::path folder_;
};

// Calls that are expected to succeed.
CUmemAllocationProp properties(int device = 0);
CUmemGenericAllocationHandle create(std::uint64_t size, int device = 0);
CUdeviceptr reserve(std::uint64_t size);
UniqueFd exported(CUmemGenericAllocationHandle handle);
CUresult import(int fd, CUmemGenericAllocationHandle* handle);
CUresult set_access(CUdeviceptr address, std::uint64_t size, CUmemAccess_flags flags, int device = 0);
/// Reserves and maps `handle` with the given access.
CUdeviceptr mapped(CUmemGenericAllocationHandle handle, std::uint64_t size,
                   CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
/// Memory at a device address, for the direct look that only the simulation allows.
inline volatile unsigned char* bytes_at(CUdeviceptr address) {
  return reinterpret_cast<volatile unsigned char*>(address);
}

#define EXPECT_CU(expression) EXPECT_EQ(expression, CUDA_SUCCESS)
#define ASSERT_CU(expression) ASSERT_EQ(expression, CUDA_SUCCESS)

}  // namespace gpumem::sim::test
