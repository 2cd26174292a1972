// Slices through the C ABI.
#include <thread>

#include "tests/integration/c_abi/broker.h"

namespace gpumem::test {
namespace {

using CSlice = CAbiTest;

TEST_F(CSlice, GrowsShrinksReleasesAndTellsOfItself) {
  gpumem_slice* slice = open_slice();
  EXPECT_EQ(gpumem_slice_limit(slice), kPool.count);
  EXPECT_EQ(gpumem_slice_granularity(slice), mebibytes(2).count);
  EXPECT_EQ(gpumem_slice_ordinal(slice), 0);
  EXPECT_EQ(std::string(gpumem_slice_device(slice)), broker().device().uuid());
  std::uint64_t committed = 0;
  EXPECT_TRUE(ok(gpumem_slice_grow(slice, mebibytes(5).count, nullptr, &committed)));
  EXPECT_EQ(committed, mebibytes(6).count);
  EXPECT_EQ(gpumem_slice_committed(slice), committed);
  *memory_at(gpumem_slice_base(slice) + committed - 1) = 7;
  bool all = false;
  EXPECT_TRUE(ok(gpumem_slice_set_in_use(slice, committed, &all)));
  EXPECT_TRUE(all);
  EXPECT_TRUE(ok(gpumem_slice_set_in_use(slice, committed + 1, &all)));
  EXPECT_FALSE(all);
  std::uint64_t released = 0;
  EXPECT_TRUE(ok(gpumem_slice_release(slice, 1, 0, &released)));
  EXPECT_GT(released, 0U);
  EXPECT_TRUE(ok(gpumem_slice_shrink(slice, 0, &committed)));
  EXPECT_EQ(committed, 0U);
  EXPECT_TRUE(ok(gpumem_slice_close(slice)));
  EXPECT_EQ(gpumem_slice_committed(slice), 0U);
  EXPECT_NE(gpumem_slice_base(slice), 0U) << "a constant outlives the slice";
}

TEST_F(CSlice, OpeningRefusesBadOptionsWithAReason) {
  gpumem_slice* slice = nullptr;
  gpumem_slice_options options = GPUMEM_SLICE_OPTIONS_INIT;
  options.device = "GPU-00000000-0000-0000-0000-000000000001";
  EXPECT_TRUE(fails(GPUMEM_NOT_FOUND, gpumem_slice_open(session_, &options, &slice)));
  options.device = "the first";
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_slice_open(session_, &options, &slice)));
  const std::string longer(200, 'x');
  options = GPUMEM_SLICE_OPTIONS_INIT;
  options.label = longer.c_str();
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_slice_open(session_, &options, &slice), "label"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_slice_open(session_, nullptr, nullptr), "NULL"));
  EXPECT_EQ(slice, nullptr);
}

TEST_F(CSlice, RefusalsSayWhyAndChangeNothing) {
  gpumem_slice* slice = open_slice();
  std::uint64_t committed = 7;
  EXPECT_TRUE(
      fails(GPUMEM_RESOURCE_EXHAUSTED, gpumem_slice_grow(slice, kPool.count + 1, nullptr, &committed)));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_slice_grow(slice, UINT64_MAX, nullptr, &committed)));
  gpumem_grow_options options = GPUMEM_GROW_OPTIONS_INIT;
  options.least = 2;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_slice_grow(slice, 1, &options, &committed)));
  options = GPUMEM_GROW_OPTIONS_INIT;
  options.wait_ms = -5;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_slice_grow(slice, 1, &options, &committed), "wait_ms"));
  EXPECT_EQ(committed, 7U) << "nothing is stored";
  auto neighbour = neighbour_with(mebibytes(200));
  EXPECT_TRUE(fails(GPUMEM_RESOURCE_EXHAUSTED,
                    gpumem_slice_grow(slice, mebibytes(100).count, nullptr, nullptr),
                    "of which 200MiB are charged already"));
  options.wait_ms = 20;
  EXPECT_TRUE(fails(GPUMEM_DEADLINE_EXCEEDED,
                    gpumem_slice_grow(slice, mebibytes(100).count, &options, nullptr),
                    "of which 200MiB are charged already"));
  EXPECT_EQ(gpumem_slice_committed(slice), 0U);
  EXPECT_EQ(neighbour->leave(), 0);
}

TEST_F(CSlice, ClosingCallsOffAGrowthThatWaits) {
  auto neighbour = neighbour_with(mebibytes(200));
  gpumem_slice* slice = open_slice();
  std::thread grower([&] {
    gpumem_grow_options options = GPUMEM_GROW_OPTIONS_INIT;
    options.wait_ms = 600'000;
    EXPECT_TRUE(fails(GPUMEM_CANCELLED, gpumem_slice_grow(slice, mebibytes(100).count, &options, nullptr)));
  });
  EXPECT_TRUE(eventually([] { return broker().device().waiting() == 1; }));
  EXPECT_TRUE(ok(gpumem_slice_close(slice)));
  grower.join();
  EXPECT_EQ(neighbour->leave(), 0);
}

}  // namespace
}  // namespace gpumem::test
