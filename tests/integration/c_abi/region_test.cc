// Regions through the C ABI.
#include <sys/uio.h>
#include <unistd.h>

#include "tests/integration/c_abi/broker.h"

namespace gpumem::test {
namespace {

struct CRegion : CAbiTest {
  CRegion() {
    slice_ = open_slice();
    EXPECT_TRUE(ok(gpumem_slice_grow(slice_, mebibytes(4).count, nullptr, nullptr)));
  }
  std::uint64_t publish(const gpumem_publish_options* options = nullptr) {
    std::uint64_t version = 0;
    EXPECT_TRUE(ok(gpumem_slice_publish(slice_, "weights", 0, 0, options, &version)));
    return version;
  }
  gpumem_status publishing(const gpumem_publish_options& options, std::uint64_t offset = 0,
                           std::uint64_t bytes = 0) {
    std::uint64_t version = 0;
    return gpumem_slice_publish(slice_, "weights", offset, bytes, &options, &version);
  }
  // The byte at `address`; -1: nothing is mapped.
  static int value_at(gpumem_address address) {
    unsigned char value = 0;
    const iovec here{&value, 1}, there{reinterpret_cast<void*>(address), 1};
    return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == 1 ? value : -1;
  }
  std::uint64_t version_of(const gpumem_import* region) {
    gpumem_region_info info = GPUMEM_REGION_INFO_INIT;
    EXPECT_TRUE(ok(gpumem_import_region(region, &info)));
    return info.version;
  }
  gpumem_slice* slice_;
};

TEST_F(CRegion, TellsOfItselfAndIsRead) {
  gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
  options.layout = 100;
  options.digest[31] = 9;
  *memory_at(gpumem_slice_base(slice_) + 5) = 77;
  const std::uint64_t version = publish(&options);
  gpumem_import* region = nullptr;
  ASSERT_TRUE(ok(gpumem_map_region(session_, "weights", nullptr, &region)));
  EXPECT_EQ(gpumem_import_bytes(region), mebibytes(4).count);
  EXPECT_EQ(*memory_at(gpumem_import_address(region) + 5), 77);
  gpumem_region_info info = GPUMEM_REGION_INFO_INIT;
  ASSERT_TRUE(ok(gpumem_import_region(region, &info)));
  EXPECT_EQ(info.version, version);
  EXPECT_EQ(info.layout, 100U);
  EXPECT_EQ(info.digest[0], 0);
  EXPECT_EQ(info.digest[31], 9);
  EXPECT_TRUE(ok(gpumem_remove_region(session_, "weights", version)));
  EXPECT_EQ(*memory_at(gpumem_import_address(region) + 5), 77) << "it stays mapped";
  EXPECT_TRUE(ok(gpumem_import_close(region)));
  gpumem_import_free(region);
}

TEST_F(CRegion, AnImportOfAHandleIsNone) {
  gpumem_ipc_handle handle{};
  ASSERT_TRUE(ok(gpumem_slice_export(slice_, 0, 0, nullptr, &handle)));
  gpumem_import* import = nullptr;
  ASSERT_TRUE(ok(gpumem_import_handle(session_, &handle, &import)));
  gpumem_region_info info = GPUMEM_REGION_INFO_INIT;
  ASSERT_TRUE(ok(gpumem_import_region(import, &info)));
  EXPECT_EQ(info.version, 0U);
  gpumem_import_free(import);
}

TEST_F(CRegion, SaysWhatIsWrongWithWhatIsPublished) {
  std::uint64_t version = 0;
  EXPECT_TRUE(
      fails(GPUMEM_INVALID_ARGUMENT, gpumem_slice_publish(nullptr, "a", 0, 0, nullptr, &version), "NULL"));
  EXPECT_TRUE(
      fails(GPUMEM_INVALID_ARGUMENT, gpumem_slice_publish(slice_, "a", 0, 0, nullptr, nullptr), "NULL"));
  EXPECT_TRUE(
      fails(GPUMEM_INVALID_ARGUMENT, gpumem_slice_publish(slice_, nullptr, 0, 0, nullptr, &version), "128"));
  gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, publishing(options, mebibytes(4).count), "not committed"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, publishing(options, 1, UINT64_MAX), "not committed"));
  options.layout = 4097;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, publishing(options, 0, 4096), "layout"));
  options = GPUMEM_PUBLISH_OPTIONS_INIT;
  options.life_ms = -1;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, publishing(options), "life_ms"));
  options = GPUMEM_PUBLISH_OPTIONS_INIT;
  options.sharing = GPUMEM_SHARING_NAMED;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, publishing(options), "named"));
  options.reader_count = 1;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, publishing(options), "readers"));
  const char* const readers[9] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
  options.readers = readers;
  options.reader_count = 9;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, publishing(options), "8 tenants at most"));
  options.reader_count = 8;
  EXPECT_TRUE(ok(publishing(options)));
  options.struct_size = 1;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, publishing(options), "gpumem_publish_options"));
}

TEST_F(CRegion, IsReservedPublishedAndThenMapped) {
  gpumem_reserve_options options = GPUMEM_RESERVE_OPTIONS_INIT;
  gpumem_import* region = nullptr;
  std::uint64_t first = 0, second = 0;
  ASSERT_TRUE(ok(gpumem_map_or_reserve(session_, "weights", nullptr, &region, &first)));
  EXPECT_EQ(region, nullptr);
  EXPECT_NE(first, 0U);
  EXPECT_TRUE(fails(GPUMEM_NOT_FOUND, gpumem_map_or_reserve(session_, "weights", &options, &region, &second),
                    "reserved by session"));
  options.wait_ms = 1;
  EXPECT_TRUE(fails(GPUMEM_DEADLINE_EXCEEDED,
                    gpumem_map_or_reserve(session_, "weights", &options, &region, &second), "reserved"));
  EXPECT_TRUE(ok(gpumem_release_reservation(session_, first)));
  EXPECT_TRUE(fails(GPUMEM_NOT_FOUND, gpumem_release_reservation(session_, first), "no such reservation"));
  ASSERT_TRUE(ok(gpumem_map_or_reserve(session_, "weights", &options, &region, &second)));
  EXPECT_GT(second, first);
  const std::uint64_t version = publish();
  options.writable = true;
  ASSERT_TRUE(ok(gpumem_map_or_reserve(session_, "weights", &options, &region, &second)));
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(second, 0U);
  gpumem_region_info info = GPUMEM_REGION_INFO_INIT;
  ASSERT_TRUE(ok(gpumem_import_region(region, &info)));
  EXPECT_EQ(info.version, version);
  *memory_at(gpumem_import_address(region)) = 78;
  gpumem_import_free(region);
}

TEST_F(CRegion, SaysWhatIsWrongWithWhatIsReserved) {
  gpumem_import* region = nullptr;
  std::uint64_t number = 0;
  EXPECT_TRUE(
      fails(GPUMEM_INVALID_ARGUMENT, gpumem_map_or_reserve(nullptr, "a", nullptr, &region, &number), "NULL"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_map_or_reserve(session_, "a", nullptr, nullptr, &number),
                    "NULL"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_map_or_reserve(session_, "a", nullptr, &region, nullptr),
                    "NULL"));
  EXPECT_TRUE(
      fails(GPUMEM_INVALID_ARGUMENT, gpumem_map_or_reserve(session_, "", nullptr, &region, &number), "128"));
  gpumem_reserve_options options = GPUMEM_RESERVE_OPTIONS_INIT;
  options.life_ms = -1;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_map_or_reserve(session_, "a", &options, &region, &number),
                    "life_ms"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_release_reservation(nullptr, 1), "NULL"));
  EXPECT_TRUE(fails(GPUMEM_NOT_FOUND, gpumem_release_reservation(session_, 1), "no such reservation"));
}

TEST_F(CRegion, IsMappedAgainInItsPlace) {
  const std::uint64_t first = publish();
  *memory_at(gpumem_slice_base(slice_) + 5) = 77;
  gpumem_import* region = nullptr;
  ASSERT_TRUE(ok(gpumem_map_region(session_, "weights", nullptr, &region)));
  const gpumem_address place = gpumem_import_address(region) + 5;
  ASSERT_TRUE(ok(gpumem_import_unmap(region)));
  EXPECT_EQ(value_at(place), -1);
  EXPECT_EQ(gpumem_import_address(region) + 5, place) << "it is still its";
  const std::uint64_t second = publish();
  ASSERT_TRUE(ok(gpumem_import_remap(region, nullptr)));
  EXPECT_TRUE(gpumem_import_is_mapped(region));
  EXPECT_EQ(value_at(place), 77);
  EXPECT_EQ(version_of(region), first);
  ASSERT_TRUE(ok(gpumem_import_unmap(region)));
  gpumem_remap_options newest = GPUMEM_REMAP_OPTIONS_INIT;
  newest.newest = true;
  ASSERT_TRUE(ok(gpumem_import_remap(region, &newest)));
  EXPECT_EQ(version_of(region), second);
  EXPECT_EQ(value_at(place), 77);
  gpumem_import_free(region);
}

TEST_F(CRegion, IsNotMappedInThePlaceOfWhatIsLaidOutOtherwise) {
  publish();
  gpumem_import* region = nullptr;
  ASSERT_TRUE(ok(gpumem_map_region(session_, "weights", nullptr, &region)));
  const gpumem_address place = gpumem_import_address(region);
  ASSERT_TRUE(ok(gpumem_import_unmap(region)));
  gpumem_remap_options newest = GPUMEM_REMAP_OPTIONS_INIT;
  newest.newest = true;
  gpumem_publish_options other = GPUMEM_PUBLISH_OPTIONS_INIT;
  other.layout = 100;
  other.digest[0] = 1;
  ASSERT_EQ(publishing(other), GPUMEM_OK);
  EXPECT_TRUE(
      fails(GPUMEM_FAILED_PRECONDITION, gpumem_import_remap(region, &newest), "another layout or size"));
  other.digest[0] = 0;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(publishing(other), GPUMEM_OK);
  gpumem_import* told_nothing = nullptr;
  ASSERT_TRUE(ok(gpumem_map_region(session_, "weights", nullptr, &told_nothing)));
  ASSERT_TRUE(ok(gpumem_import_unmap(told_nothing)));
  EXPECT_TRUE(ok(gpumem_import_remap(told_nothing, &newest))) << "it is the same version";
  ASSERT_TRUE(ok(gpumem_import_unmap(told_nothing)));
  ASSERT_EQ(publishing(other), GPUMEM_OK);
  EXPECT_TRUE(fails(GPUMEM_FAILED_PRECONDITION, gpumem_import_remap(told_nothing, &newest), "digest"))
      << "who knows what that layout is";
  gpumem_import_free(told_nothing);
  other = GPUMEM_PUBLISH_OPTIONS_INIT;
  for (const auto& [offset, bytes] : {std::pair(0, 4096), {4096, 0}}) {
    ASSERT_EQ(publishing(other, static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(bytes)),
              GPUMEM_OK);
    EXPECT_TRUE(
        fails(GPUMEM_FAILED_PRECONDITION, gpumem_import_remap(region, &newest), "another layout or size"));
  }
  EXPECT_EQ(value_at(place), -1) << "it stays unmapped";
  EXPECT_TRUE(ok(gpumem_import_remap(region, nullptr))) << "and the version of before is there still";
  gpumem_import_free(region);
}

TEST_F(CRegion, SaysWhatIsWrongWithWhatIsUnmapped) {
  gpumem_ipc_handle handle{};
  ASSERT_TRUE(ok(gpumem_slice_export(slice_, 0, 0, nullptr, &handle)));
  gpumem_import* import = nullptr;
  ASSERT_TRUE(ok(gpumem_import_handle(session_, &handle, &import)));
  EXPECT_TRUE(fails(GPUMEM_FAILED_PRECONDITION, gpumem_import_unmap(import), "only regions"));
  EXPECT_TRUE(fails(GPUMEM_FAILED_PRECONDITION, gpumem_import_remap(import, nullptr), "only regions"));
  gpumem_import_free(import);
  const std::uint64_t version = publish();
  ASSERT_TRUE(ok(gpumem_map_region(session_, "weights", nullptr, &import)));
  EXPECT_TRUE(fails(GPUMEM_FAILED_PRECONDITION, gpumem_import_remap(import, nullptr), "unmap it first"));
  ASSERT_TRUE(ok(gpumem_import_unmap(import)));
  EXPECT_TRUE(fails(GPUMEM_FAILED_PRECONDITION, gpumem_import_unmap(import), "unmapped"));
  EXPECT_FALSE(gpumem_import_is_mapped(import));
  gpumem_remap_options options = GPUMEM_REMAP_OPTIONS_INIT;
  options.struct_size = 1;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_import_remap(import, &options), "gpumem_remap_options"));
  ASSERT_TRUE(ok(gpumem_remove_region(session_, "weights", version)));
  EXPECT_TRUE(fails(GPUMEM_NOT_FOUND, gpumem_import_remap(import, nullptr), "weights"));
  EXPECT_TRUE(ok(gpumem_import_close(import))) << "of what is not mapped";
  EXPECT_FALSE(gpumem_import_is_mapped(import));
  EXPECT_FALSE(gpumem_import_is_mapped(nullptr));
  EXPECT_TRUE(fails(GPUMEM_FAILED_PRECONDITION, gpumem_import_remap(import, nullptr), "closed"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_import_unmap(nullptr), "NULL"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_import_remap(nullptr, nullptr), "NULL"));
  gpumem_import_free(import);
}

TEST_F(CRegion, SaysWhatIsWrongWithWhatIsMapped) {
  gpumem_import* region = nullptr;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_map_region(nullptr, "a", nullptr, &region), "NULL"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_map_region(session_, "a", nullptr, nullptr), "NULL"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_map_region(session_, nullptr, nullptr, &region), "128"));
  EXPECT_TRUE(fails(GPUMEM_NOT_FOUND, gpumem_map_region(session_, "a", nullptr, &region), "no region 'a'"));
  const std::string long_owner(129, 'x');
  gpumem_region_options options = GPUMEM_REGION_OPTIONS_INIT;
  options.owner = long_owner.c_str();
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_map_region(session_, "a", &options, &region), "128"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_remove_region(nullptr, "a", 0), "NULL"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_remove_region(session_, "", 0), "128"));
  EXPECT_TRUE(fails(GPUMEM_NOT_FOUND, gpumem_remove_region(session_, "a", 0), "no region 'a'"));
  gpumem_region_info info = GPUMEM_REGION_INFO_INIT;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_import_region(nullptr, &info), "NULL"));
  EXPECT_EQ(region, nullptr);
}

}  // namespace
}  // namespace gpumem::test
