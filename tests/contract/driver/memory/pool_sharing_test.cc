// A pool passed on as a descriptor, and single allocations of it as 64 bytes.
#include "tests/contract/driver/memory/pools.h"

namespace gpumem::contract {
namespace {

using PoolSharing = DriverTest;

CUmemoryPool shareable_pool() { return create_pool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR); }

UniqueFd exported_pool(CUmemoryPool pool) {
  int descriptor = -1;
  must(calls().cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                                0));
  return UniqueFd(descriptor);
}

CUmemoryPool imported_pool(const UniqueFd& descriptor) {
  CUmemoryPool pool = nullptr;
  must(calls().cuMemPoolImportFromShareableHandle(
      &pool, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor.get())),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return pool;
}

/// Memory of `pool` that is there, whichever stream uses it.
CUdeviceptr allocated(CUmemoryPool pool, std::uint64_t size, CUstream stream) {
  CUdeviceptr address = 0;
  must(calls().cuMemAllocFromPoolAsync(&address, size, pool, stream));
  must(calls().cuStreamSynchronize(stream));
  return address;
}

void give_up(CUmemoryPool pool, CUdeviceptr address, CUstream stream) {
  must(calls().cuMemFreeAsync(address, stream));
  must(calls().cuStreamSynchronize(stream));
  must(calls().cuMemPoolDestroy(pool));
}

// Makes a pool and an allocation filled with 7, passes both on, and frees when told.
void share(Channel& channel, std::uint64_t size, bool is_checked) {
  const cuda::CurrentContext entered = context();
  const Stream stream;
  const CUmemoryPool pool = shareable_pool();
  CUdeviceptr address = 0;
  must(calls().cuMemAllocFromPoolAsync(&address, size, pool, stream));
  must(calls().cuMemsetD8Async(address, 7, size, stream));
  must(calls().cuStreamSynchronize(stream));
  const UniqueFd descriptor = exported_pool(pool);
  CUmemPoolPtrExportData token{};
  must(calls().cuMemPoolExportPointer(&token, address));
  channel.send(descriptor.get());
  channel.tell_value(token);
  channel.await();
  if (is_checked) {
    EXPECT_TRUE(holds(address, {size}, 8)) << "what the importer wrote";
  }
  give_up(pool, address, stream);
}

struct Shared {
  UniqueFd descriptor;
  CUmemPoolPtrExportData token;
};
Shared receive(Channel& channel) {
  UniqueFd descriptor = channel.receive();
  return {std::move(descriptor), channel.hear_value<CUmemPoolPtrExportData>()};
}

TEST_F(PoolSharing, ShowsAnAllocationToAnotherProcess) {
  const std::uint64_t size = 2 * unit_.count;
  Process exporter([&](Channel& channel) { share(channel, size, true); });
  Shared shared = receive(exporter.channel());
  in_process([&] {
    const cuda::CurrentContext entered = context();
    const CUmemoryPool pool = imported_pool(shared.descriptor);
    CUdeviceptr address = 0;
    CUmemPoolPtrExportData token = shared.token;
    ASSERT_OK(calls().cuMemPoolImportPointer(&address, pool, &token));
    EXPECT_TRUE(holds(address, {size}, 7));
    fill(address, {size}, 8);
    EXPECT_OK(calls().cuMemFree(address)) << "before the exporter does";
    EXPECT_OK(calls().cuMemPoolDestroy(pool));
  });
  exporter.signal_and_join();
  shared.descriptor.reset();  // the descriptor alone keeps the pool's memory, as with an extent
  expect_used(0);
}

TEST_IN_CONTEXT(PoolSharing, NamesNoAllocationOfAPoolThatWasNotExported) {
  const Stream stream;
  const CUmemoryPool pool = shareable_pool();
  const CUdeviceptr address = allocated(pool, unit_.count, stream);
  CUmemPoolPtrExportData token{};
  EXPECT_EQ(calls().cuMemPoolExportPointer(&token, address), CUDA_ERROR_INVALID_VALUE);
  give_up(pool, address, stream);
}

TEST_F(PoolSharing, AllocatesNothingFromAnImportedPool) {
  Process exporter([&](Channel& channel) { share(channel, unit_.count, false); });
  const Shared shared = receive(exporter.channel());
  in_process([&] {
    const cuda::CurrentContext entered = context();
    const Stream stream;
    const CUmemoryPool pool = imported_pool(shared.descriptor);
    CUdeviceptr address = 0;
    EXPECT_REFUSED(calls().cuMemAllocFromPoolAsync(&address, 4096, pool, stream));
    EXPECT_REFUSED(calls().cuDeviceSetMemPool(device().ordinal, pool));
    EXPECT_OK(calls().cuMemPoolDestroy(pool));
  });
  exporter.signal_and_join();
}

TEST_F(PoolSharing, ShowsTheImporterWhatTheExporterWritesLater) {
  Process exporter([this](Channel& channel) {
    const cuda::CurrentContext entered = context();
    const Stream stream;
    const CUmemoryPool pool = shareable_pool();
    const CUdeviceptr address = allocated(pool, unit_.count, stream);
    const UniqueFd descriptor = exported_pool(pool);
    CUmemPoolPtrExportData token{};
    must(calls().cuMemPoolExportPointer(&token, address));
    channel.send(descriptor.get());
    channel.tell_value(token);
    channel.await();
    fill(address, unit_, 0x5c);
    channel.signal_and_await();
  });
  Shared shared = receive(exporter.channel());
  Process importer([&](Channel& channel) {
    const cuda::CurrentContext entered = context();
    CUdeviceptr address = 0;
    CUmemPoolPtrExportData token = shared.token;
    must(calls().cuMemPoolImportPointer(&address, imported_pool(shared.descriptor), &token));
    channel.signal_and_await();
    EXPECT_TRUE(holds(address, unit_, 0x5c));
    EXPECT_OK(calls().cuMemFree(address));
  });
  importer.channel().await();
  exporter.channel().signal_and_await();
  importer.signal_and_join();
  exporter.kill();
  shared.descriptor.reset();
  expect_used(0);
}

TEST_IN_PROCESS(PoolSharing, OfAPoolNotMadeForItIsRefused) {
  CUmemoryPool standard = nullptr;
  must(calls().cuDeviceGetDefaultMemPool(&standard, device().ordinal));
  int descriptor = -1;
  EXPECT_REFUSED(calls().cuMemPoolExportToShareableHandle(&descriptor, standard,
                                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

TEST_IN_PROCESS(PoolSharing, TakesNoOtherDescriptorForAPool) {
  const UniqueFd extent = exported(allocate(unit_));
  for (const int descriptor : {-1, 9999, extent.get()}) {
    CUmemoryPool pool = nullptr;
    EXPECT_REFUSED(calls().cuMemPoolImportFromShareableHandle(
        &pool, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  }
}

}  // namespace
}  // namespace gpumem::contract
