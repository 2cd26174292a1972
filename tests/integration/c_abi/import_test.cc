// Handles and imports through the C ABI.
#include "tests/integration/c_abi/broker.h"

namespace gpumem::test {
namespace {

struct CImport : CAbiTest {
  CImport() {
    slice_ = open_slice();
    EXPECT_TRUE(ok(gpumem_slice_grow(slice_, mebibytes(4).count, nullptr, nullptr)));
  }
  gpumem_ipc_handle handle(const gpumem_export_options* options = nullptr) {
    gpumem_ipc_handle handle{};
    EXPECT_TRUE(ok(gpumem_slice_export(slice_, 0, 0, options, &handle)));
    return handle;
  }
  gpumem_slice* slice_;
};

TEST_F(CImport, TellsOfItselfAndSharesMemory) {
  const gpumem_ipc_handle handle = this->handle();
  gpumem_import* import = nullptr;
  ASSERT_TRUE(ok(gpumem_import_handle(session_, &handle, &import)));
  EXPECT_EQ(gpumem_import_bytes(import), mebibytes(4).count);
  EXPECT_EQ(gpumem_import_ordinal(import), 0);
  EXPECT_EQ(std::string(gpumem_import_device(import)), broker().device().uuid());
  const gpumem_address here = gpumem_import_address(import);
  EXPECT_NE(here, gpumem_slice_base(slice_));
  *memory_at(here + 5) = 77;
  EXPECT_EQ(*memory_at(gpumem_slice_base(slice_) + 5), 77);
  EXPECT_TRUE(ok(gpumem_import_close(import)));
  EXPECT_EQ(gpumem_import_address(import), here) << "a constant";
  EXPECT_TRUE(fails(GPUMEM_FAILED_PRECONDITION, gpumem_import_close(import), "closed"));
  gpumem_import_free(import);
}

TEST_F(CImport, OutlivesItsSliceAndItsSessionsHandle) {
  gpumem_session* other = nullptr;
  ASSERT_TRUE(ok(gpumem_session_connect(nullptr, &other)));
  const gpumem_ipc_handle handle = this->handle();
  gpumem_import* import = nullptr;
  ASSERT_TRUE(ok(gpumem_import_handle(other, &handle, &import)));
  *memory_at(gpumem_slice_base(slice_)) = 3;
  EXPECT_TRUE(ok(gpumem_slice_close(slice_)));
  EXPECT_TRUE(ok(gpumem_session_close(other)));
  EXPECT_EQ(*memory_at(gpumem_import_address(import)), 3);
  EXPECT_EQ(broker().device().free(), kPool.count - mebibytes(4).count);
  EXPECT_TRUE(ok(gpumem_import_close(import)));
  gpumem_import_free(import);
  gpumem_session_free(other);
}

TEST_F(CImport, RefusesBadArgumentsWithAReason) {
  gpumem_ipc_handle handle{};
  gpumem_import* import = nullptr;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_import_handle(session_, &handle, &import), "no handle"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_import_handle(session_, nullptr, &import), "NULL"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_import_handle(session_, &handle, nullptr), "NULL"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_slice_export(slice_, 0, 0, nullptr, nullptr), "NULL"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT,
                    gpumem_slice_export(slice_, mebibytes(4).count, 0, nullptr, &handle), "not committed"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_slice_export(slice_, 1, UINT64_MAX, nullptr, &handle),
                    "not committed"));
  gpumem_export_options options = GPUMEM_EXPORT_OPTIONS_INIT;
  options.life_ms = -1;
  EXPECT_TRUE(
      fails(GPUMEM_INVALID_ARGUMENT, gpumem_slice_export(slice_, 0, 0, &options, &handle), "life_ms"));
  options.life_ms = std::int64_t{25} * 3600 * 1000;
  EXPECT_TRUE(
      fails(GPUMEM_INVALID_ARGUMENT, gpumem_slice_export(slice_, 0, 0, &options, &handle), "24 hours"));
  options = GPUMEM_EXPORT_OPTIONS_INIT;
  options.uses = UINT64_MAX;
  EXPECT_TRUE(
      fails(GPUMEM_INVALID_ARGUMENT, gpumem_slice_export(slice_, 0, 0, &options, &handle), "imports"));
  EXPECT_EQ(import, nullptr);
  EXPECT_EQ(gpumem_import_bytes(nullptr), 0U);
  EXPECT_EQ(gpumem_import_device(nullptr), nullptr);
  EXPECT_EQ(gpumem_import_ordinal(nullptr), -1);
}

TEST_F(CImport, OfAnAllocatorsBlockIsItsMemory) {
  gpumem_allocator* allocator = open_allocator();
  for (const std::uint64_t bytes : {std::uint64_t{1000}, mebibytes(3).count, mebibytes(40).count}) {
    gpumem_address small = 0, block = 0;
    ASSERT_TRUE(ok(gpumem_allocate(allocator, 100, nullptr, &small)));
    ASSERT_TRUE(ok(gpumem_allocate(allocator, bytes, nullptr, &block)));
    *memory_at(block + 7) = 70;
    *memory_at(block + bytes - 1) = 71;
    gpumem_ipc_handle handle{};
    ASSERT_TRUE(ok(gpumem_allocator_export(allocator, block, 7, 0, nullptr, &handle)));
    gpumem_import* import = nullptr;
    ASSERT_TRUE(ok(gpumem_import_handle(session_, &handle, &import)));
    EXPECT_EQ(gpumem_import_bytes(import), bytes - 7);
    EXPECT_EQ(*memory_at(gpumem_import_address(import)), 70);
    EXPECT_EQ(*memory_at(gpumem_import_address(import) + bytes - 8), 71);
    *memory_at(gpumem_import_address(import)) = 72;
    EXPECT_EQ(*memory_at(block + 7), 72);
    EXPECT_TRUE(ok(gpumem_deallocate(allocator, block, bytes, nullptr)));
    EXPECT_TRUE(ok(gpumem_allocator_trim(allocator, UINT64_MAX, nullptr)));
    EXPECT_EQ(*memory_at(gpumem_import_address(import)), 72) << "the import keeps the memory";
    EXPECT_TRUE(ok(gpumem_import_close(import)));
    gpumem_import_free(import);
    EXPECT_TRUE(ok(gpumem_deallocate(allocator, small, 100, nullptr)));
  }
}

TEST_F(CImport, RefusesABadBlockWithAReason) {
  gpumem_allocator* allocator = open_allocator();
  gpumem_address block = 0;
  ASSERT_TRUE(ok(gpumem_allocate(allocator, 5000, nullptr, &block)));
  gpumem_ipc_handle handle{};
  const auto exported = [&](gpumem_address at, std::uint64_t offset, std::uint64_t bytes) {
    return gpumem_allocator_export(allocator, at, offset, bytes, nullptr, &handle);
  };
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, exported(block, 0, 5001), "not in the block"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, exported(block, 5000, 0), "not in the block"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, exported(block, 1, UINT64_MAX), "not in the block"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, exported(block + 1, 0, 1), "not where a block"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, exported(0, 0, 1), "no address of this allocator"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_allocator_export(nullptr, block, 0, 0, nullptr, &handle),
                    "NULL"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT,
                    gpumem_allocator_export(allocator, block, 0, 0, nullptr, nullptr), "NULL"));
  EXPECT_TRUE(ok(gpumem_deallocate(allocator, block, 5000, nullptr)));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, exported(block, 0, 0), "freed already"));
  EXPECT_TRUE(ok(gpumem_allocator_close(allocator)));
  EXPECT_TRUE(fails(GPUMEM_FAILED_PRECONDITION, exported(block, 0, 0), "closed"));
}

TEST_F(CImport, OfMoreExtentsThanAHandleNamesIsRefused) {
  gpumem_slice* small = open_slice();
  for (std::uint64_t i = 1; i <= 65; ++i)
    ASSERT_TRUE(ok(gpumem_slice_grow(small, i * mebibytes(2).count, nullptr, nullptr)));
  gpumem_ipc_handle handle{};
  EXPECT_TRUE(ok(gpumem_slice_export(small, 0, 0, nullptr, &handle)));
  gpumem_import* import = nullptr;
  ASSERT_TRUE(ok(gpumem_import_handle(session_, &handle, &import)));
  EXPECT_EQ(gpumem_import_bytes(import), 65 * mebibytes(2).count);
  gpumem_import_free(import);
}

}  // namespace
}  // namespace gpumem::test
