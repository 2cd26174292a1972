// The driver as a whole: loading it, and its devices.
#include "cuda/driver.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "tests/contract/driver/fixture.h"

namespace gpumem::contract {
namespace {

using Driver = DriverTest;

TEST_IN_PROCESS(Driver, IsOneForTheWholeProcess) {
  const cuda::Driver& first = driver();
  EXPECT_EQ(&first, &driver());
  EXPECT_FALSE(first.version().empty());
  EXPECT_NE(first.version(), "unknown");
  auto other = cuda::Driver::open(driver_folder() / "elsewhere");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::kFailedPrecondition);
}

TEST_IN_PROCESS(Driver, IsNotFoundWhereThereIsNone) {
  auto none = cuda::Driver::open("/nowhere");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_NE(none.error().message.find("libcuda.so.1"), std::string::npos);
  EXPECT_GE(driver().devices().size(), 1U) << "a failure does not spoil the next attempt";
}

TEST_IN_PROCESS(Driver, NamesEveryDeviceByItsOwnUuid) {
  std::set<std::string> uuids;
  for (const cuda::Device& one : driver().devices()) {
    EXPECT_TRUE(uuids.insert(to_string(one.uuid)).second);
    auto found = driver().find(one.uuid);
    ASSERT_TRUE(found);
    EXPECT_EQ((*found)->ordinal, one.ordinal);
    EXPECT_FALSE(one.name.empty());
    EXPECT_FALSE(one.granularity.is_zero());
    EXPECT_GE(one.total, one.granularity);
  }
}

TEST_IN_PROCESS(Driver, SaysWhichDevicesThereAreWhereOneIsUnknown) {
  auto unknown = driver().find({});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Code::kNotFound);
  EXPECT_NE(unknown.error().message.find(to_string(device().uuid)), std::string::npos);
}

TEST_F(Driver, ShowsOnlyVisibleDevicesUnderNewOrdinals) {
  Process first([](Channel& channel) {
    if (driver().devices().size() < 2) return channel.signal();
    const UniqueFd name(::memfd_create("uuid", 0));
    const std::string last = to_string(driver().devices().back().uuid);
    EXPECT_EQ(::write(name.get(), last.data(), last.size()), static_cast<ssize_t>(last.size()));
    channel.send(name.get());
  });
  const UniqueFd name = first.channel().receive();
  first.join();
  if (!name.valid()) GTEST_SKIP() << "this machine has one device only";
  std::string last(40, '\0');
  ASSERT_EQ(::pread(name.get(), last.data(), last.size(), 0), static_cast<ssize_t>(last.size()));
  in_process([&] {
    ::setenv("CUDA_VISIBLE_DEVICES", last.c_str(), 1);
    ASSERT_EQ(driver().devices().size(), 1U);
    EXPECT_EQ(to_string(device().uuid), last) << "a UUID means the same everywhere";
    EXPECT_EQ(device().ordinal, 0) << "an ordinal does not";
  });
}

TEST_IN_PROCESS(Driver, WithoutVisibleDevicesIsNoDriver) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  auto none = cuda::Driver::open(driver_folder());
  ASSERT_FALSE(none);
  EXPECT_TRUE(none.error().code == Code::kNotFound) << none.error().message;
}

}  // namespace
}  // namespace gpumem::contract
