// Stream-ordered memory: pools, what they keep, and what they give back.
#include "tests/contract/driver/memory/pools.h"

namespace gpumem::contract {
namespace {

using Pools = DriverTest;

TEST_IN_PROCESS(Pools, EveryDeviceHasADefaultOne) {
  CUmemoryPool standard = nullptr, current = nullptr;
  const int ordinal = device().ordinal;
  ASSERT_OK(calls().cuDeviceGetDefaultMemPool(&standard, ordinal));
  ASSERT_OK(calls().cuDeviceGetMemPool(&current, ordinal));
  EXPECT_NE(standard, nullptr);
  EXPECT_EQ(current, standard);
  EXPECT_EQ(ask<cuuint64_t>(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0U) << "it keeps nothing";
  EXPECT_EQ(ask<int>(standard, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES), 1);
  EXPECT_EQ(ask<int>(standard, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC), 1);
  EXPECT_EQ(ask<int>(standard, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES), 1);
  EXPECT_REFUSED(calls().cuMemPoolDestroy(standard));
}

TEST_IN_PROCESS(Pools, AnotherMayBecomeTheDevices) {
  const int ordinal = device().ordinal;
  const CUmemoryPool pool = create_pool();
  CUmemoryPool standard = nullptr, current = nullptr;
  must(calls().cuDeviceGetDefaultMemPool(&standard, ordinal));
  ASSERT_OK(calls().cuDeviceSetMemPool(ordinal, pool));
  must(calls().cuDeviceGetMemPool(&current, ordinal));
  EXPECT_EQ(current, pool);
  ASSERT_OK(calls().cuMemPoolDestroy(pool));
  must(calls().cuDeviceGetMemPool(&current, ordinal));
  EXPECT_EQ(current, standard) << "destroyed means replaced by the default one";
}

TEST_F(Pools, AllocateInTheOrderOfTheStream) {
  in_process([this] {
    const cuda::CurrentContext entered = context();
    const Stream stream;
    CUdeviceptr address = 0;
    ASSERT_OK(calls().cuMemAllocAsync(&address, 2 * unit_.count, stream));
    must(calls().cuMemsetD8Async(address, 0x42, 2 * unit_.count, stream));
    PinnedNumbers seen(1);
    must(calls().cuMemcpyDtoHAsync(seen.data(), address + unit_.count, sizeof(unsigned), stream));
    EXPECT_OK(calls().cuMemFreeAsync(address, stream));
    must(calls().cuStreamSynchronize(stream));
    EXPECT_EQ(seen[0], 0x42424242U);
    EXPECT_EQ(calls().cuMemAllocAsync(&address, std::size_t{1} << 60, stream), CUDA_ERROR_OUT_OF_MEMORY);
  });
  expect_used(0);
}

TEST_IN_CONTEXT(Pools, FreeWhatTheStreamIsStillUsingOnlyWhenItIsDone) {
  const CUmemoryPool pool = create_pool();
  const Stream stream;
  const CUdeviceptr address = take(pool, 4 * unit_.count, stream);
  must(calls().cuStreamSynchronize(stream));
  Gate gate(stream);
  must(calls().cuMemFreeAsync(address, stream));
  EXPECT_OK(calls().cuMemPoolTrimTo(pool, 0));
  EXPECT_GE(reserved(pool), 4 * unit_.count) << "the free is not reached yet";
  gate.open();
  must(calls().cuStreamSynchronize(stream));
  EXPECT_OK(calls().cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(reserved(pool), 0U);
  EXPECT_OK(calls().cuMemPoolDestroy(pool));
}

TEST_IN_CONTEXT(Pools, CountWhatIsUsedAndWhatIsReserved) {
  const CUmemoryPool pool = create_pool();
  const Stream stream;
  const std::uint64_t size = 4 * unit_.count;
  keep(pool, kEverything);
  EXPECT_EQ(in_use(pool), 0U);
  EXPECT_EQ(reserved(pool), 0U);
  const CUdeviceptr address = take(pool, size, stream);
  EXPECT_EQ(in_use(pool), size);
  EXPECT_GE(reserved(pool), size);
  give_back(address, stream);
  EXPECT_EQ(in_use(pool), 0U);
  EXPECT_GE(reserved(pool), size) << "kept for the next";
  EXPECT_EQ(ask<cuuint64_t>(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), size);
  EXPECT_GE(ask<cuuint64_t>(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), size);
  cuuint64_t value = 0;
  EXPECT_OK(calls().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
  EXPECT_EQ(ask<cuuint64_t>(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0U) << "begun anew";
  value = 1;
  EXPECT_REFUSED(calls().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &value));
  EXPECT_OK(calls().cuMemPoolDestroy(pool));
}

TEST_F(Pools, KeepUpToTheirThreshold) {
  Process process([this](Channel& channel) {
    const cuda::CurrentContext entered = context();
    const CUmemoryPool pool = create_pool();
    const Stream stream;
    keep(pool, kEverything);
    channel.signal_and_await();
    give_back(take(pool, 4 * block_.count, stream), stream);
    channel.tell_value(reserved(pool));
    channel.await();
    EXPECT_OK(calls().cuMemPoolTrimTo(pool, 0));
    EXPECT_EQ(reserved(pool), 0U);
    channel.signal_and_await();
    EXPECT_OK(calls().cuMemPoolDestroy(pool));
  });
  process.channel().await();
  const std::uint64_t before = used();
  process.channel().signal();
  const auto kept = process.channel().hear_value<std::uint64_t>();
  EXPECT_GE(kept, 4 * block_.count);
  expect_used(before + kept);
  process.channel().signal_and_await();
  expect_used(before);
  process.signal_and_join();
}

TEST_IN_CONTEXT(Pools, WithoutAThresholdGiveBackAtTheNextSynchronisation) {
  const CUmemoryPool pool = create_pool();
  const Stream stream;
  give_back(take(pool, 4 * unit_.count, stream), stream);
  EXPECT_EQ(reserved(pool), 0U);
  EXPECT_OK(calls().cuMemPoolDestroy(pool));
}

TEST_F(Pools, TrimToKeepsWhatItIsToldTo) {
  in_process([this] {
    const cuda::CurrentContext entered = context();
    const CUmemoryPool pool = create_pool();
    const Stream stream;
    keep(pool, kEverything);
    const CUdeviceptr first = take(pool, 32 * unit_.count, stream);
    const CUdeviceptr second = take(pool, 2 * unit_.count, stream);
    give_back(first, stream);
    EXPECT_OK(calls().cuMemPoolTrimTo(pool, 0));
    EXPECT_GE(reserved(pool), 2 * unit_.count) << "what is in use stays";
    EXPECT_EQ(in_use(pool), 2 * unit_.count);
    must(calls().cuMemsetD8Async(second, 1, 2 * unit_.count, stream));
    give_back(second, stream);
    const std::uint64_t rest = reserved(pool);
    EXPECT_OK(calls().cuMemPoolTrimTo(pool, rest));
    EXPECT_EQ(reserved(pool), rest) << "no more than that is there";
    EXPECT_OK(calls().cuMemPoolDestroy(pool));
  });
  expect_used(0);
}

TEST_IN_CONTEXT(Pools, ReuseWhatWasFreedInTheSameStream) {
  const CUmemoryPool pool = create_pool();
  const Stream stream;
  keep(pool, kEverything);
  const std::uint64_t size = 8 * unit_.count;
  must(calls().cuMemFreeAsync(take(pool, size, stream), stream));
  const std::uint64_t before = reserved(pool);
  for (int round = 0; round < 20; ++round) must(calls().cuMemFreeAsync(take(pool, size, stream), stream));
  EXPECT_EQ(reserved(pool), before);
  must(calls().cuStreamSynchronize(stream));
  EXPECT_OK(calls().cuMemPoolDestroy(pool));
}

TEST_F(Pools, DestroyedLiveOnUntilTheirMemoryIsFreed) {
  in_process([this] {
    const cuda::CurrentContext entered = context();
    const CUmemoryPool pool = create_pool();
    const Stream stream;
    const CUdeviceptr address = take(pool, unit_.count, stream);
    must(calls().cuStreamSynchronize(stream));
    EXPECT_OK(calls().cuMemPoolDestroy(pool));
    EXPECT_OK(calls().cuMemsetD8Async(address, 1, unit_.count, stream));
    EXPECT_OK(calls().cuMemFreeAsync(address, stream));
    EXPECT_OK(calls().cuStreamSynchronize(stream));
  });
  expect_used(0);
}

TEST_F(Pools, MemoryOfThemIsFreedByCuMemFreeToo) {
  in_process([this] {
    const cuda::CurrentContext entered = context();
    const Stream stream;
    CUdeviceptr address = 0;
    must(calls().cuMemAllocAsync(&address, unit_.count, stream));
    must(calls().cuStreamSynchronize(stream));
    EXPECT_OK(calls().cuMemFree(address));
    EXPECT_REFUSED(calls().cuMemFree(address));
    must(calls().cuMemAlloc(&address, unit_.count));
    EXPECT_OK(calls().cuMemFreeAsync(address, stream)) << "and the other way round";
    must(calls().cuStreamSynchronize(stream));
  });
  expect_used(0);
}

}  // namespace
}  // namespace gpumem::contract
