#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cuda/memory.h"
#include "cuda/nvml.h"
#include "tests/contract/process.h"

namespace gpumem::contract {

/// A test of the driver in $GPUMEM_DRIVER_DIR. The test's own process only looks, through NVML; whatever uses
/// the driver is in a Process.
class DriverTest : public testing::Test {
 protected:
  void SetUp() override;

  /// Bytes of the first device in use beyond those when the test began, by anyone.
  std::uint64_t used() const;
  /// Waits until they are `bytes`: drivers free memory a moment after its last user.
  void expect_used(std::uint64_t bytes) const;

  const cuda::Nvml& nvml() const { return *nvml_; }
  cuda::DeviceUuid uuid_;  ///< of the first device
  Bytes unit_;             ///< its granularity

 private:
  std::unique_ptr<cuda::Nvml> nvml_;
  std::uint64_t before_ = 0;
};

/// The folder under test.
std::filesystem::path driver_folder();

// In a Process only; what fails, fails the test and ends the process.
const cuda::Driver& driver();
const cuda::Device& device();
cuda::Allocation allocate(Bytes size);
cuda::Allocation import(const UniqueFd& descriptor, Bytes size);
UniqueFd exported(const cuda::Allocation& allocation);
/// Reserves addresses for `allocation` and maps it.
struct Mapped {
  cuda::Reservation range;
  cuda::Mapping mapping;
};
Mapped map(const cuda::Allocation& allocation);
void fill(cuda::Address at, Bytes size, int value);
/// Whether every byte is `value`.
bool holds(cuda::Address at, Bytes size, int value);

}  // namespace gpumem::contract
