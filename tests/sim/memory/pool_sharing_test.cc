// Pools between processes: a descriptor for the pool, 64 bytes for each allocation.

#include "sim/machine/machine.h"
#include "tests/sim/memory/pool_support.h"

namespace gpumem::sim::test {
namespace {

using PoolSharing = SimTest;

CUmemoryPool create_shareable() {
  return create_pool(pool_properties(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
}

UniqueFd exported_pool(CUmemoryPool pool) {
  int fd = -1;
  EXPECT_CU(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return UniqueFd(fd);
}

CUresult import_pool(int fd, CUmemoryPool* pool) {
  return cuMemPoolImportFromShareableHandle(pool, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

/// Sends a pool and two allocations in it, of 1000 bytes with 1 and of 3 pages with 2; then waits, and ends.
void share(Channel& channel) {
  enter_primary();
  const CUmemoryPool pool = create_shareable();
  channel.send(exported_pool(pool).get());
  const std::uint64_t sizes[] = {1000, 3 * kPage};
  for (unsigned char i = 0; i < 2; ++i) {
    const CUdeviceptr memory = allocate(pool, sizes[i], nullptr);
    EXPECT_CU(cuMemsetD8(memory, static_cast<unsigned char>(i + 1), sizes[i]));
    CUmemPoolPtrExportData data{};
    EXPECT_CU(cuMemPoolExportPointer(&data, memory));
    channel.tell_value(data);
  }
  channel.await();
}

/// What share() sends, as another process imports it.
struct Shared {
  UniqueFd fd;
  CUmemPoolPtrExportData data[2];

  explicit Shared(Channel& channel) : fd(channel.receive()) {
    for (CUmemPoolPtrExportData& one : data) one = channel.hear_value<CUmemPoolPtrExportData>();
  }
  CUmemoryPool import() const {
    CUmemoryPool pool = nullptr;
    EXPECT_CU(import_pool(fd.get(), &pool));
    return pool;
  }
  CUdeviceptr import(CUmemoryPool pool, int which) const {
    CUmemPoolPtrExportData copy = data[which];
    CUdeviceptr address = 0;
    EXPECT_CU(cuMemPoolImportPointer(&address, pool, &copy));
    return address;
  }
};

TEST_F(PoolSharing, PointerImportedTwiceIsFreedTwice) {
  Process owner(share);
  const Shared shared(owner.channel());
  in_process([&] {
    enter_primary();
    const CUmemoryPool pool = shared.import();
    const CUdeviceptr first = shared.import(pool, 0);
    EXPECT_EQ(shared.import(pool, 0), first);
    EXPECT_CU(cuMemFreeAsync(first, nullptr));
    EXPECT_EQ(*bytes_at(first), 1);
    EXPECT_EQ(used_in(pool), 1024U);
    EXPECT_CU(cuMemFreeAsync(first, nullptr));
    EXPECT_EQ(cuMemFreeAsync(first, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(shared.import(pool, 0), first);
  });
}

TEST_F(PoolSharing, ImporterOutlivesExporterAndItsDescriptor) {
  Process owner(share);
  Shared shared(owner.channel());
  Process importer([&](Channel& channel) {
    enter_primary();
    const CUmemoryPool pool = shared.import();
    const CUdeviceptr memory = shared.import(pool, 1);
    EXPECT_CU(cuMemPoolDestroy(pool));  // lives on with its allocation
    channel.signal_and_await();
    EXPECT_EQ(*bytes_at(memory), 2);
    EXPECT_CU(cuMemFree(memory));
    channel.signal_and_await();
  });
  importer.channel().await();
  owner.kill();
  EXPECT_EQ(used(), kContext + 3 * kPage);
  importer.channel().signal_and_await();
  EXPECT_EQ(used(), kContext);
  importer.signal_and_join();
  EXPECT_EQ(used(), 0U);
}

TEST_IN_CONTEXT(PoolSharing, SharedPoolsKeepTheirMemoryUntilTheyEnd) {
  const CUmemoryPool pool = create_shareable();
  EXPECT_CU(cuMemFree(allocate(pool, kPage, nullptr)));
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_CU(cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(reserved(pool), kPage);
  EXPECT_CU(cuMemPoolDestroy(pool));
  EXPECT_EQ(used(), kContext);
}

}  // namespace
}  // namespace gpumem::sim::test
