// Arrays and external memory: what they take, and when it is free again.
#include <cuda.h>
#include <fcntl.h>

#include <tuple>

#include "tests/sim/memory/pool_support.h"

namespace gpumem::sim::test {
namespace {

class ArrayCalls : public SimTest {};

/// Of floats.
CUDA_ARRAY3D_DESCRIPTOR shape_of(std::size_t width, std::size_t height, std::size_t depth,
                                 unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = width;
  shape.Height = height;
  shape.Depth = depth;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  shape.Flags = flags;
  return shape;
}

TEST_IN_CONTEXT(ArrayCalls, MemoryIsTakenInPagesAndFreedByTheirEnd) {
  const std::uint64_t before = memory_left();
  CUDA_ARRAY_DESCRIPTOR flat{};
  flat.Width = 1000;
  flat.Height = 100;
  flat.Format = CU_AD_FORMAT_HALF;
  flat.NumChannels = 4;
  CUarray plain = nullptr, deep = nullptr;
  ASSERT_EQ(cuArrayCreate(&plain, &flat), CUDA_SUCCESS);
  EXPECT_EQ(memory_left(), before - 13UL * 65536) << "800,000 bytes";
  const auto shape = shape_of(64, 64, 64);
  ASSERT_EQ(cuArray3DCreate(&deep, &shape), CUDA_SUCCESS);
  EXPECT_EQ(memory_left(), before - 13UL * 65536 - (1UL << 20));
  EXPECT_CU(cuArrayDestroy(plain));
  EXPECT_EQ(cuArrayDestroy(plain), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CU(cuArrayDestroy(deep));
  EXPECT_EQ(memory_left(), before);
}

TEST_IN_CONTEXT(ArrayCalls, LevelsOfMipmappedOnesAreEachHalfAsLarge) {
  const std::uint64_t before = memory_left();
  const auto shape = shape_of(1024, 1024, 0);
  CUmipmappedArray made = nullptr;
  ASSERT_EQ(cuMipmappedArrayCreate(&made, &shape, 3), CUDA_SUCCESS);
  EXPECT_EQ(memory_left(), before - (4U << 20) - (1U << 20) - (1U << 18));
  EXPECT_CU(cuMipmappedArrayDestroy(made));
  EXPECT_EQ(memory_left(), before);
  EXPECT_EQ(cuMipmappedArrayCreate(&made, &shape, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_IN_CONTEXT(ArrayCalls, SparseAndDeferredOnesTakeNothingAndTheLatterTellWhatTheyNeed) {
  const std::uint64_t before = memory_left();
  const auto sparse = shape_of(1024, 1024, 0, CUDA_ARRAY3D_SPARSE);
  const auto deferred = shape_of(1024, 1024, 0, CUDA_ARRAY3D_DEFERRED_MAPPING);
  CUarray one = nullptr, two = nullptr;
  CUmipmappedArray mipmapped = nullptr;
  ASSERT_EQ(cuArray3DCreate(&one, &sparse), CUDA_SUCCESS);
  ASSERT_EQ(cuArray3DCreate(&two, &deferred), CUDA_SUCCESS);
  ASSERT_EQ(cuMipmappedArrayCreate(&mipmapped, &deferred, 2), CUDA_SUCCESS);
  EXPECT_EQ(memory_left(), before);
  CUDA_ARRAY_MEMORY_REQUIREMENTS needed{};
  EXPECT_EQ(cuArrayGetMemoryRequirements(&needed, one, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuArrayGetMemoryRequirements(&needed, two, 0));
  EXPECT_EQ(needed.size, 4U << 20);
  EXPECT_CU(cuMipmappedArrayGetMemoryRequirements(&needed, mipmapped, 0));
  EXPECT_EQ(needed.size, 5U << 20);
}

TEST_IN_CONTEXT(ArrayCalls, TheyTellTheirShapeAsTheyWereMade) {
  const auto shape = shape_of(16, 8, 4, CUDA_ARRAY3D_SURFACE_LDST);
  CUarray made = nullptr;
  ASSERT_EQ(cuArray3DCreate(&made, &shape), CUDA_SUCCESS);
  CUDA_ARRAY3D_DESCRIPTOR whole{};
  EXPECT_CU(cuArray3DGetDescriptor(&whole, made));
  EXPECT_EQ(std::tie(whole.Width, whole.Height, whole.Depth),
            std::tie(shape.Width, shape.Height, shape.Depth));
  EXPECT_EQ(whole.Flags, static_cast<unsigned>(CUDA_ARRAY3D_SURFACE_LDST));
  CUDA_ARRAY_DESCRIPTOR flat{
      .Width = 10, .Height = 0, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 2};
  ASSERT_EQ(cuArrayCreate(&made, &flat), CUDA_SUCCESS);
  CUDA_ARRAY_DESCRIPTOR told{};
  EXPECT_CU(cuArrayGetDescriptor(&told, made));
  EXPECT_EQ(std::tie(told.Width, told.Height, told.Format, told.NumChannels),
            std::tie(flat.Width, flat.Height, flat.Format, flat.NumChannels));
  EXPECT_EQ(cuArrayGetDescriptor(nullptr, made), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuArrayDestroy(made));
  EXPECT_EQ(cuArrayGetDescriptor(&told, made), CUDA_ERROR_INVALID_HANDLE);
}

TEST_IN_CONTEXT(ArrayCalls, TheyGoWithTheirContext) {
  const std::uint64_t before = memory_left();
  const auto shape = shape_of(1024, 1024, 0);
  CUarray made = nullptr;
  ASSERT_EQ(cuArray3DCreate(&made, &shape), CUDA_SUCCESS);
  EXPECT_CU(cuDevicePrimaryCtxReset(0));
  enter_primary();
  EXPECT_EQ(memory_left(), before);
  EXPECT_EQ(cuArrayDestroy(made), CUDA_ERROR_INVALID_HANDLE);
}

TEST_IN_CONTEXT(ArrayCalls, ImportedDescriptorIsTheDriversUntilItIsDestroyed) {
  const std::uint64_t before = memory_left();
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC given{};
  given.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  given.handle.fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  CUexternalMemory made = nullptr;
  EXPECT_EQ(cuImportExternalMemory(&made, &given), CUDA_ERROR_INVALID_VALUE) << "of no size";
  given.size = 1U << 20;
  ASSERT_EQ(cuImportExternalMemory(&made, &given), CUDA_SUCCESS);
  EXPECT_EQ(memory_left(), before);
  EXPECT_CU(cuDestroyExternalMemory(made));
  EXPECT_EQ(::fcntl(given.handle.fd, F_GETFD), -1) << "the driver has closed it";
  EXPECT_EQ(cuDestroyExternalMemory(made), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuImportExternalMemory(&made, &given), CUDA_ERROR_INVALID_VALUE) << "a closed descriptor";
}

}  // namespace
}  // namespace gpumem::sim::test
