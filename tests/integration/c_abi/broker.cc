#include "tests/integration/c_abi/broker.h"

#include <cstdlib>

namespace gpumem::test {

BrokerProcess& broker() {
  static BrokerProcess broker({.config = kShared});
  ::setenv("GPUMEM_RUNTIME_DIR", broker.folder().c_str(), 1);
  return broker;
}

testing::AssertionResult ok(gpumem_status status) {
  if (status == GPUMEM_OK) return testing::AssertionSuccess();
  return testing::AssertionFailure() << gpumem_status_name(status) << ": " << gpumem_last_error();
}

testing::AssertionResult fails(gpumem_status expected, gpumem_status status, const std::string& words) {
  const std::string said = status == GPUMEM_OK ? "" : gpumem_last_error();
  if (status == expected && !said.empty() && said.find(words) != std::string::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << gpumem_status_name(status) << ": " << said;
}

CAbiTest::CAbiTest() {
  gpumem_session_options options = GPUMEM_SESSION_OPTIONS_INIT;
  const std::string folder = broker().folder();
  options.runtime_folder = folder.c_str();
  options.label = "test";
  options.timeout_ms = 20'000;  // longer than any machine is slow
  EXPECT_TRUE(ok(gpumem_session_connect(&options, &session_)));
}

// What a test has closed already answers so.
CAbiTest::~CAbiTest() {
  for (gpumem_slice* slice : slices_) (void)gpumem_slice_close(slice);
  for (gpumem_allocator* allocator : allocators_) (void)gpumem_allocator_destroy(allocator);
  (void)gpumem_session_close(session_);
  EXPECT_TRUE(eventually([] { return broker().device().free() == kPool.count; })) << broker().unrest();
}

gpumem_slice* CAbiTest::open_slice(bool trim_on_pressure) {
  gpumem_slice_options options = GPUMEM_SLICE_OPTIONS_INIT;
  options.trim_on_pressure = trim_on_pressure;
  gpumem_slice* slice = nullptr;
  EXPECT_TRUE(ok(gpumem_slice_open(session_, &options, &slice)));
  slices_.push_back(slice);
  return slice;
}

gpumem_allocator* CAbiTest::open_allocator(gpumem_allocator_options options) {
  gpumem_allocator* allocator = nullptr;
  EXPECT_TRUE(ok(gpumem_allocator_open(session_, &options, &allocator)));
  allocators_.push_back(allocator);
  return allocator;
}

std::unique_ptr<ClientProcess> CAbiTest::neighbour_with(Bytes bytes) {
  auto neighbour = std::make_unique<ClientProcess>(broker().folder(), ClientOptions{});
  EXPECT_TRUE(succeeded(neighbour->connect()));
  EXPECT_TRUE(succeeded(neighbour->open("a")));
  EXPECT_TRUE(succeeded(neighbour->grow("a", bytes)));
  return neighbour;
}

}  // namespace gpumem::test
