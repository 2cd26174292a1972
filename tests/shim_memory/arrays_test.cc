// Arrays and external memory, which the driver keeps for the program.
#include <fcntl.h>
#include <unistd.h>

#include "client/shim/memory/outside/array_size.h"
#include "tests/shim_memory/scene.h"

namespace gpumem::shim::test {
namespace {

using ArraysTest = ShimMemory;

/// Of `mebibytes` MiB.
CUDA_ARRAY3D_DESCRIPTOR array_of(std::size_t mebibytes, unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = 1024;
  shape.Height = 256 * mebibytes;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  shape.Flags = flags;
  return shape;
}

template <class Descriptor>
Descriptor flat_array_of(unsigned mebibytes) {
  Descriptor shape{};
  shape.Width = 1024;
  shape.Height = 256 * mebibytes;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  return shape;
}

CUarray new_array(std::size_t mebibytes) {
  const auto shape = array_of(mebibytes);
  CUarray array = nullptr;
  EXPECT_CU(calls::cuArray3DCreate_v2(&array, &shape));
  return array;
}

SCENE(UsesArrays) {
  start();
  const auto four = array_of(4), nine = array_of(9);
  CUarray one = nullptr, two = nullptr;
  ASSERT_CU(calls::cuArray3DCreate_v2(&one, &four));
  EXPECT_EQ(free_memory(), 8 * kMiB);
  EXPECT_EQ(calls::cuArray3DCreate_v2(&two, &nine), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(free_memory(), 8 * kMiB);
  auto bad = array_of(1);
  bad.NumChannels = 3;
  EXPECT_EQ(calls::cuArray3DCreate_v2(&two, &bad), CUDA_ERROR_INVALID_VALUE) << "the driver's answer";
  EXPECT_EQ(calls::cuArray3DCreate_v2(&two, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(free_memory(), 8 * kMiB) << "what was charged for it is given up";
  CUdeviceptr block = 0;
  EXPECT_EQ(calls::cuMemAlloc_v2(&block, 9 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  tell_and_await();
  EXPECT_CU(calls::cuArrayDestroy(one));
  EXPECT_NE(calls::cuArrayDestroy(one), CUDA_SUCCESS) << "twice";
  EXPECT_EQ(free_memory(), 12 * kMiB);
  tell_and_await();
}

TEST_F(ArraysTest, ArraysAreChargedBeforeTheyAreMade) {
  expect_told_of_outside("UsesArrays", 4 * kMiB, {{"GPUMEM_LIMIT", "12MiB"}, {"GPUMEM_WAIT", "10h"}});
}

SCENE(UsesOtherArrays) {
  start();
  CUarray array = nullptr;
  const auto flat = flat_array_of<CUDA_ARRAY_DESCRIPTOR>(4);
  const auto too_flat = flat_array_of<CUDA_ARRAY_DESCRIPTOR>(13);
  EXPECT_EQ(calls::cuArrayCreate_v2(&array, &too_flat), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(calls::cuArrayCreate_v2(&array, &flat));
  EXPECT_EQ(free_memory(), 8 * kMiB);
  EXPECT_CU(calls::cuArrayDestroy(array));

  const auto old = flat_array_of<CUDA_ARRAY_DESCRIPTOR_v1>(4);
  const auto too_old = flat_array_of<CUDA_ARRAY_DESCRIPTOR_v1>(13);
  EXPECT_EQ(calls::cuArrayCreate(&array, &too_old), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(calls::cuArrayCreate(&array, &old));
  EXPECT_EQ(free_memory(), 8 * kMiB);
  EXPECT_CU(calls::cuArrayDestroy(array));

  auto old_3d = flat_array_of<CUDA_ARRAY3D_DESCRIPTOR_v1>(1);
  old_3d.Depth = 13;
  EXPECT_EQ(calls::cuArray3DCreate(&array, &old_3d), CUDA_ERROR_OUT_OF_MEMORY);
  old_3d.Depth = 4;
  ASSERT_CU(calls::cuArray3DCreate(&array, &old_3d));
  EXPECT_EQ(free_memory(), 8 * kMiB);
  EXPECT_CU(calls::cuArrayDestroy(array));

  CUmipmappedArray mipmapped = nullptr;
  const auto four = array_of(4), ten = array_of(10);
  EXPECT_EQ(calls::cuMipmappedArrayCreate(&mipmapped, &ten, 3), CUDA_ERROR_OUT_OF_MEMORY)
      << "10 MiB would fit, and the smaller levels do not";
  ASSERT_CU(calls::cuMipmappedArrayCreate(&mipmapped, &four, 2));
  EXPECT_EQ(free_memory(), 6 * kMiB) << "in whole units";
  EXPECT_CU(calls::cuMipmappedArrayDestroy(mipmapped));
  EXPECT_NE(calls::cuMipmappedArrayDestroy(mipmapped), CUDA_SUCCESS) << "twice";
  EXPECT_EQ(free_memory(), 12 * kMiB);
}

TEST_F(ArraysTest, EveryCallThatMakesOneIsCharged) {
  expect("UsesOtherArrays", {{"GPUMEM_LIMIT", "12MiB"}, {"GPUMEM_WAIT", "10h"}});
}

SCENE_TEST(ArraysTest, SparseAndDeferredArraysTakeNothingUntilMemoryIsMadeForThem) {
  start();
  for (const int flags : {CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING}) {
    CUarray array = nullptr;
    const auto shape = array_of(8, static_cast<unsigned>(flags));
    ASSERT_CU(calls::cuArray3DCreate_v2(&array, &shape));
    EXPECT_EQ(free_memory(), kPool);
    EXPECT_CU(calls::cuArrayDestroy(array));
  }
  EXPECT_EQ(free_memory(), kPool);
}

SCENE_TEST(ArraysTest, TheyGoWithTheirContext) {
  const CUcontext primary = start();
  new_array(4);
  CUcontext context = nullptr;
  ASSERT_CU(real<decltype(&::cuCtxCreate_v2)>("cuCtxCreate_v2")(&context, 0, 0));
  new_array(8);
  EXPECT_EQ(free_memory(), kPool - 12 * kMiB);
  EXPECT_CU(calls::cuCtxDestroy_v2(context));
  EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(primary));
  EXPECT_EQ(free_memory(), kPool - 4 * kMiB);
}

SCENE(ImportsExternalMemory) {
  start();
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC given{};
  given.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  given.size = 65 * kMiB;
  given.handle.fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  CUexternalMemory memory = nullptr;
  EXPECT_EQ(calls::cuImportExternalMemory(&memory, &given), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::fcntl(given.handle.fd, F_GETFD), FD_CLOEXEC) << "the descriptor stays the program's";
  given.size = 40 * kMiB;
  ASSERT_CU(calls::cuImportExternalMemory(&memory, &given));
  EXPECT_EQ(free_memory(), 24 * kMiB);
  EXPECT_CU(calls::cuDestroyExternalMemory(memory));
  EXPECT_EQ(free_memory(), 64 * kMiB);
  EXPECT_NE(calls::cuDestroyExternalMemory(memory), CUDA_SUCCESS) << "twice";
  given.handle.fd = -1;
  EXPECT_EQ(calls::cuImportExternalMemory(&memory, &given), CUDA_ERROR_INVALID_VALUE)
      << "the driver's answer";
  EXPECT_EQ(calls::cuImportExternalMemory(&memory, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(free_memory(), 64 * kMiB);
}

TEST_F(ArraysTest, ExternalMemoryIsChargedWhileItIsImported) {
  expect("ImportsExternalMemory", {{"GPUMEM_LIMIT", "64MiB"}});
}

SCENE_TEST(ArraysTest, HandlesForTilesOfSparseArraysAreChargedUntilTheirLastRelease) {
  start();
  CUmemAllocationProp asked{};
  asked.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  asked.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  asked.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
  CUmemGenericAllocationHandle handle = 0, retained = 0;
  EXPECT_EQ(calls::cuMemCreate(&handle, kPool + 2 * kMiB, &asked, 0), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(calls::cuMemCreate(&handle, 4 * kMiB, &asked, 0));
  EXPECT_EQ(free_memory(), kPool - 4 * kMiB);
  CUdeviceptr at = 0;
  ASSERT_CU(real<decltype(&::cuMemAddressReserve)>("cuMemAddressReserve")(&at, 4 * kMiB, 0, 0, 0));
  ASSERT_CU(calls::cuMemMap(at, 4 * kMiB, 0, handle, 0));
  ASSERT_CU(calls::cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(at)));
  EXPECT_CU(calls::cuMemRelease(handle));
  EXPECT_EQ(free_memory(), kPool - 4 * kMiB) << "it was retained";
  EXPECT_CU(calls::cuMemRelease(retained));
  EXPECT_EQ(free_memory(), kPool);
}

struct SmallTenant : ShimMemory {
  SmallTenant()
      : ShimMemory({.config = "[broker]\nreserve = \"all-but 32MiB\"\n[[tenant]]\nname = \"me\"\nuser = " +
                              std::to_string(::geteuid()) + "\nlimit = \"64MiB\"\n"}) {}
};

SCENE(HoldsAnArray) {
  start();
  new_array(8);
  tell_and_await();
}
SCENE(WantsArraysOfTheTenant) {
  start();
  CUarray array = nullptr;
  const auto all = array_of(60), half = array_of(16);
  EXPECT_EQ(calls::cuArray3DCreate_v2(&array, &all), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(free_memory(), 64 * kMiB) << "of its own it has nothing";
  EXPECT_CU(calls::cuArray3DCreate_v2(&array, &half));
}

TEST_F(SmallTenant, LimitOfTheTenantHoldsForAllItsProcesses) {
  Actor holder = actor("HoldsAnArray");
  holder.await();
  expect("WantsArraysOfTheTenant", {{"GPUMEM_WAIT", "100ms"}});
  holder.tell_and_expect_success();
}

TEST(ArraySize, IsThatOfTheElementsInPages) {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = 1000;
  shape.Height = 1000;
  shape.NumChannels = 4;
  const auto size = [&](CUarray_format format, unsigned levels = 0) {
    shape.Format = format;
    return estimated_size(ArrayShape::of(shape, levels)).count;
  };
  const auto pages = [](std::uint64_t bytes) { return (bytes + 65535) / 65536 * 65536; };
  EXPECT_EQ(size(CU_AD_FORMAT_SIGNED_INT8), pages(4'000'000));
  EXPECT_EQ(size(CU_AD_FORMAT_HALF), pages(8'000'000));
  EXPECT_EQ(size(CU_AD_FORMAT_FLOAT), pages(16'000'000));
  EXPECT_EQ(size(CU_AD_FORMAT_FLOAT, 3), pages(16'000'000 + 4'000'000 + 1'000'000));
  EXPECT_EQ(size(CU_AD_FORMAT_BC1_UNORM), pages(500'000)) << "8 bytes for each 4 by 4";
  EXPECT_EQ(size(CU_AD_FORMAT_BC7_UNORM), pages(1'000'000));
  EXPECT_EQ(size(CU_AD_FORMAT_NV12), pages(16'000'000)) << "no format has more";
  shape.Depth = 6;
  shape.Flags = CUDA_ARRAY3D_LAYERED;
  EXPECT_EQ(size(CU_AD_FORMAT_SIGNED_INT8, 2), pages(30'000'000)) << "levels have as many layers";
  shape.Flags = 0;
  EXPECT_EQ(size(CU_AD_FORMAT_SIGNED_INT8, 2), pages(27'000'000));
  shape.Width = shape.Height = shape.Depth = ~std::size_t{0};
  EXPECT_GT(size(CU_AD_FORMAT_FLOAT, 64), ~std::uint64_t{0} / 2) << "it does not wrap";
}

}  // namespace
}  // namespace gpumem::shim::test
