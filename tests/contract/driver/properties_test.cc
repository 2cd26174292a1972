// The driver's data of an extent, and several handles of one extent.
#include "cuda/memory.h"
#include "tests/contract/driver/fixture.h"

namespace gpumem::contract {
namespace {

using Properties = DriverTest;

CUmemAllocationProp properties_of(CUmemGenericAllocationHandle handle) {
  CUmemAllocationProp found{};
  must(calls().cuMemGetAllocationPropertiesFromHandle(&found, handle));
  return found;
}

void expect_on_our_device(const CUmemAllocationProp& found) {
  EXPECT_EQ(found.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(found.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(found.location.id, device().ordinal);
}

void expect_ours(const CUmemAllocationProp& found) {
  expect_on_our_device(found);
  EXPECT_EQ(found.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

TEST_IN_PROCESS(Properties, AreThoseGivenAtCreation) {
  const cuda::Allocation one = allocate(unit_);
  const CUmemAllocationProp found = properties_of(one.handle());
  expect_ours(found);
  EXPECT_EQ(found.allocFlags.gpuDirectRDMACapable != 0, device().has_direct_access);
}

TEST_F(Properties, OfAnImportTellTheDeviceAndNoHandles) {
  Process exporter([this](Channel& channel) { channel.send(exported(allocate(unit_)).get()); });
  const UniqueFd descriptor = exporter.channel().receive();
  exporter.join();
  in_process([&] {
    const CUmemAllocationProp found = properties_of(import(descriptor, unit_).handle());
    expect_on_our_device(found);
    EXPECT_EQ(found.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
    EXPECT_EQ(found.allocFlags.gpuDirectRDMACapable, 0);
  });
}

TEST_F(Properties, OfAnImportDoNotLetItBeExported) {
  Process exporter([this](Channel& channel) { channel.send(exported(allocate(unit_)).get()); });
  const UniqueFd descriptor = exporter.channel().receive();
  exporter.join();
  in_process([&] {
    const cuda::Allocation one = import(descriptor, unit_);
    int again = -1;
    EXPECT_EQ(calls().cuMemExportToShareableHandle(&again, one.handle(),
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
              CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(Properties, NameTheImportersOwnOrdinal) {
  if (devices_ < 2) GTEST_SKIP() << "one device only";
  Process exporter([](Channel& channel) {
    const cuda::Device& last = driver().devices().back();
    auto one = cuda::Allocation::create(driver(), last.ordinal, last.granularity);
    ASSERT_TRUE(one) << one.error().message;
    channel.send(exported(*one).get());
  });
  const UniqueFd descriptor = exporter.channel().receive();
  exporter.join();
  in_process([&] {
    ::setenv("CUDA_VISIBLE_DEVICES", to_string(last_uuid_).c_str(), 1);
    EXPECT_EQ(properties_of(import(descriptor, unit_).handle()).location.id, 0);
  });
}

TEST_IN_PROCESS(Properties, TellTheGranularityBeforeAnythingIsMade) {
  const CUmemAllocationProp properties = cuda::allocation_properties(device().ordinal);
  std::size_t least = 0, best = 0;
  ASSERT_OK(calls().cuMemGetAllocationGranularity(&least, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  ASSERT_OK(calls().cuMemGetAllocationGranularity(&best, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  EXPECT_GT(least, 0U);
  EXPECT_EQ(best % least, 0U);
  EXPECT_EQ(best, device().granularity.count);
}

TEST_F(Properties, RetainGivesTheHandleThatWasMapped) {
  Process process([this](Channel& channel) {
    const Mapped mapped = map(allocate(block_));  // the mapping's own handle is released
    CUmemGenericAllocationHandle handle = 0;
    void* const inside = reinterpret_cast<void*>(mapped.range.base() + block_.count / 2);
    ASSERT_OK(calls().cuMemRetainAllocationHandle(&handle, inside)) << "any address in the mapping will do";
    expect_ours(properties_of(handle));
    Mapped again{reserve(block_), {}};
    fill(mapped.range.base(), block_, 5);
    ASSERT_OK(calls().cuMemMap(again.range.base(), block_.count, 0, handle, 0));
    const CUmemAccessDesc access = access_of(device().ordinal, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ASSERT_OK(calls().cuMemSetAccess(again.range.base(), block_.count, &access, 1));
    EXPECT_TRUE(holds(again.range.base(), block_, 5)) << "the same memory";
    EXPECT_OK(calls().cuMemUnmap(again.range.base(), block_.count));
    EXPECT_OK(calls().cuMemRelease(handle));
    channel.signal_and_await();
  });
  process.channel().await();
  expect_used(block_.count);
  process.signal_and_join();
  expect_used(0);
}

TEST_F(Properties, RetainedHandleKeepsTheMemory) {
  Process process([this](Channel& channel) {
    CUmemGenericAllocationHandle handle = 0;
    {
      const Mapped mapped = map(allocate(block_));
      ASSERT_OK(calls().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(mapped.range.base())));
    }
    channel.signal_and_await();
    EXPECT_OK(calls().cuMemRelease(handle));
    channel.signal_and_await();
  });
  process.channel().await();
  expect_used(block_.count);
  process.channel().signal_and_await();
  expect_used(0);
  process.signal_and_join();
}

TEST_IN_PROCESS(Properties, EveryExportIsADescriptorOfItsOwn) {
  const cuda::Allocation one = allocate(unit_);
  const UniqueFd first = exported(one), second = exported(one);
  EXPECT_NE(first.get(), second.get());
  const UniqueFd copy(::dup(first.get()));
  const Mapped mapped = map(one);
  fill(mapped.range.base(), unit_, 6);
  for (const UniqueFd* descriptor : {&first, &second, &copy}) {
    const Mapped other = map(import(*descriptor, unit_));
    EXPECT_TRUE(holds(other.range.base(), unit_, 6));
  }
}

}  // namespace
}  // namespace gpumem::contract
