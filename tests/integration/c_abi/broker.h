#pragma once
#include <gtest/gtest.h>

#include <string>

#include "gpumem.h"
#include "tests/integration/fixture.h"
#include "tests/support/in_child.h"

namespace gpumem::test {

/// The broker of all tests of this program, which ends with it. The environment names it.
BrokerProcess& broker();

/// For EXPECT_TRUE: a call that went well, or what it said.
testing::AssertionResult ok(gpumem_status status);
/// One that failed with `expected`, and in words that hold `words`.
testing::AssertionResult fails(gpumem_status expected, gpumem_status status, const std::string& words = "");

/// A session of the test's own, and what it opens; all is closed at the end, and the broker then charges
/// nobody.
class CAbiTest : public testing::Test {
 protected:
  CAbiTest();
  ~CAbiTest() override;

  gpumem_slice* open_slice(bool trim_on_pressure = false);
  gpumem_allocator* open_allocator(gpumem_allocator_options options = GPUMEM_ALLOCATOR_OPTIONS_INIT);
  /// A process that holds `bytes` of the device.
  std::unique_ptr<ClientProcess> neighbour_with(Bytes bytes);

  gpumem_session* session_ = nullptr;

 private:
  std::vector<gpumem_slice*> slices_;
  std::vector<gpumem_allocator*> allocators_;
};

/// Simulated device memory is host memory.
inline volatile std::uint8_t* memory_at(gpumem_address address) {
  return reinterpret_cast<volatile std::uint8_t*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace gpumem::test
