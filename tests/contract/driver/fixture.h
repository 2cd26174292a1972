#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cuda/memory.h"
#include "cuda/nvml.h"
#include "tests/contract/driver/calls.h"
#include "tests/contract/driver/processes/process.h"

#define EXPECT_OK(call) EXPECT_EQ(call, CUDA_SUCCESS)
#define ASSERT_OK(call) ASSERT_EQ(call, CUDA_SUCCESS)
/// An error of any kind: which one is not promised.
#define EXPECT_REFUSED(call) EXPECT_NE(call, CUDA_SUCCESS)

/// Shows results by name where an expectation fails.
void PrintTo(CUresult result, std::ostream* out);

namespace gpumem::contract {

/// A test of the driver in $GPUMEM_DRIVER_DIR. The test's own process only looks, through NVML; whatever uses
/// the driver is in a Process.
class DriverTest : public testing::Test {
 protected:
  void SetUp() override;

  /// Bytes of the first device in use beyond those when the test began, by anyone.
  std::uint64_t used() const;
  /// Whether `used` tells of `bytes`, a multiple of block_.
  bool is_used(std::uint64_t bytes) const;
  /// Waits until they are `bytes`: drivers free memory a moment after its last user. Does nothing where the
  /// management library shows a process its own memory alone ($GPUMEM_CONTRACT_FIGURES=own).
  void expect_used(std::uint64_t bytes) const;
  void expect_used_at_least(std::uint64_t bytes) const;

  const cuda::Nvml& nvml() const { return *nvml_; }
  /// Runs `body` while this process does not use the management library, which may keep a device awake.
  void without_nvml(const std::function<void()>& body);
  cuda::DeviceUuid uuid_;       ///< of the first device
  cuda::DeviceUuid last_uuid_;  ///< of the last one
  Bytes unit_;                  ///< the first one's granularity
  Bytes total_;                 ///< its memory
  int devices_ = 0;             ///< visible ones
  /// The least amount that NVML's figures are asked about. A device of 2 GiB and more may be a real one,
  /// where drivers keep page tables and the like in the device's memory: figures are exact only to slack_
  /// there.
  Bytes block_;
  Bytes slack_;

 private:
  std::unique_ptr<cuda::Nvml> nvml_;
  std::uint64_t before_ = 0;
};

/// The folder under test.
std::filesystem::path driver_folder();
/// An empty file without a name.
UniqueFd temporary_file();

// In a Process only; what fails, fails the test and ends the process.
const cuda::Driver& driver();
const cuda::Device& device();
void must(CUresult result, const char* file = __builtin_FILE(), int line = __builtin_LINE());
cuda::Allocation allocate(Bytes size);
cuda::Allocation import(const UniqueFd& descriptor, Bytes size);
UniqueFd exported(const cuda::Allocation& allocation);
cuda::Reservation reserve(Bytes size);
cuda::CurrentContext context(int ordinal = -1);  ///< -1: the first device's
CUcontext current();                             ///< this thread's context
/// As TEST_IN_PROCESS, in the primary context of the first device.
#define TEST_IN_CONTEXT(fixture, name) \
  GPUMEM_TEST_IN_PROCESS(fixture, name, const cuda::CurrentContext entered = context())
/// Reserves addresses for `allocation` and maps it.
struct Mapped {
  cuda::Reservation range;
  cuda::Mapping mapping;
};
Mapped map(const cuda::Allocation& allocation);
void fill(cuda::Address at, Bytes size, int value);
/// Whether every byte is `value`.
bool holds(cuda::Address at, Bytes size, int value);
CUmemAccessDesc access_of(int ordinal, CUmemAccess_flags flags);
/// Gives the first device access to `size` bytes from `at`.
CUresult set_access(cuda::Address at, std::uint64_t size);

}  // namespace gpumem::contract
