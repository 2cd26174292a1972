// Fabric handles: 64 bytes that name memory for other processes, where the device and its driver offer them.
#include "tests/contract/driver/fixture.h"

namespace gpumem::contract {
namespace {

constexpr auto kBoth = cuda::HandleTypes::kDescriptorAndFabric;

cuda::Allocation fabric_memory(Bytes size) {
  auto made = cuda::Allocation::create(driver(), device().ordinal, size, kBoth);
  EXPECT_TRUE(made) << made.error().message;
  return made ? std::move(*made) : cuda::Allocation();
}

Mapped map_only(cuda::Allocation one) {
  Mapped mapped{reserve(one.size()), {}};
  std::vector<cuda::Allocation> all;
  all.push_back(std::move(one));
  auto made = cuda::Mapping::create(driver(), mapped.range.base(), all, device().ordinal);
  EXPECT_TRUE(made) << made.error().message;
  if (made) mapped.mapping = std::move(*made);
  return mapped;
}

class Fabric : public DriverTest {
 protected:
  /// The driver's reason for refusing fabric handles; empty: it offers them.
  static std::string refusal() {
    Process process([](Channel& channel) {
      const auto checked = cuda::check_fabric(driver(), device());
      channel.tell(checked ? "offered" : checked.error().message);
    });
    const std::string said = process.channel().hear();
    process.join();
    return said == "offered" ? "" : said;
  }
};

#define GPUMEM_NEEDS_FABRIC() \
  if (const std::string why = refusal(); !why.empty()) GTEST_SKIP() << why

TEST_F(Fabric, WhereTheyAreNotOfferedCreationSaysSoAndDescriptorsStillWork) {
  if (refusal().empty()) GTEST_SKIP() << "they are offered";
  in_process([&] {
    const auto refused = cuda::Allocation::create(driver(), device().ordinal, unit_, kBoth);
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().code == Code::kFailedPrecondition ||
                refused.error().code == Code::kPermissionDenied)
        << refused.error().message;
    EXPECT_TRUE(exported(allocate(unit_)).valid());
  });
}

TEST_F(Fabric, AHandleCarriesTheMemoryToAnotherProcess) {
  GPUMEM_NEEDS_FABRIC();
  Process writer([this](Channel& channel) {
    const cuda::Allocation one = fabric_memory(unit_);
    const Mapped mapped = map(one);
    fill(mapped.range.base(), unit_, 0x5a);
    channel.tell_value(one.export_fabric().value());
    channel.await();
    EXPECT_TRUE(holds(mapped.range.base(), unit_, 0xa5)) << "what the other wrote";
  });
  const auto handle = writer.channel().hear_value<cuda::FabricHandle>();
  in_process([&] {
    auto imported = cuda::Allocation::import(driver(), handle, unit_);
    ASSERT_TRUE(imported) << imported.error().message;
    const Mapped mapped = map_only(std::move(*imported));
    EXPECT_TRUE(holds(mapped.range.base(), unit_, 0x5a));
    fill(mapped.range.base(), unit_, 0xa5);
  });
  writer.signal_and_join();
  expect_used(0);
}

TEST_F(Fabric, AHandleKeepsNothing) {
  GPUMEM_NEEDS_FABRIC();
  Process owner([this](Channel& channel) {
    cuda::Allocation one = fabric_memory(block_);
    channel.tell_value(one.export_fabric().value());
    channel.await();
    one = {};
    channel.signal_and_await();
  });
  const auto handle = owner.channel().hear_value<cuda::FabricHandle>();
  expect_used(block_.count);
  owner.channel().signal_and_await();
  expect_used(0);
  in_process([&] { EXPECT_FALSE(cuda::Allocation::import(driver(), handle, block_)); });
  owner.signal_and_join();
}

TEST_F(Fabric, AnImporterKeepsTheMemoryOfAProcessThatHasEnded) {
  GPUMEM_NEEDS_FABRIC();
  Process owner([this](Channel& channel) {
    const cuda::Allocation one = fabric_memory(block_);
    fill(map(one).range.base(), block_, 0x17);
    channel.tell_value(one.export_fabric().value());
    channel.await();
  });
  const auto handle = owner.channel().hear_value<cuda::FabricHandle>();
  Process user([&](Channel& channel) {
    auto imported = cuda::Allocation::import(driver(), handle, block_);
    ASSERT_TRUE(imported) << imported.error().message;
    channel.signal_and_await();
    const Mapped mapped = map_only(std::move(*imported));
    EXPECT_TRUE(holds(mapped.range.base(), block_, 0x17));
  });
  user.channel().await();
  owner.signal_and_join();
  expect_used(block_.count);
  user.signal_and_join();
  expect_used(0);
}

TEST_F(Fabric, WhatNamesNothingIsRefused) {
  GPUMEM_NEEDS_FABRIC();
  in_process([&] {
    EXPECT_FALSE(cuda::Allocation::import(driver(), cuda::FabricHandle{}, unit_));
    cuda::FabricHandle altered = fabric_memory(unit_).export_fabric().value();
    for (char& one : altered) one = static_cast<char>(one ^ 0x55);
    EXPECT_FALSE(cuda::Allocation::import(driver(), altered, unit_));
    EXPECT_FALSE(allocate(unit_).export_fabric()) << "made for descriptors alone";
  });
}

}  // namespace
}  // namespace gpumem::contract
