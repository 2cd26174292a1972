// Copies and fills of rows, and what is set of memory, held against a naive model.
#include "tests/sim/memory/copy_support.h"

namespace gpumem::sim::test {
namespace {

class Copies : public SimTest {
 protected:
  Copies() : SimTest("2x64MiB") {}
};

TEST_IN_CONTEXT(Copies, RowsNeedNoAlignment) {
  const CUdeviceptr from = holding(counted()), to = holding(filled(0xee));
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.srcPitch = 13;
  copy.srcXInBytes = 1;
  copy.srcY = 2;
  copy.dstDevice = to;
  copy.dstPitch = 7;
  copy.WidthInBytes = 5;
  copy.Height = 3;
  EXPECT_CU(cuMemcpy2DUnaligned(&copy));
  Buffer expected = filled(0xee);
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t i = 0; i < 5; ++i) {
      expected[row * 7 + i] = static_cast<unsigned char>((row + 2) * 13 + 1 + i);
    }
  }
  EXPECT_EQ(content(to), expected);
  copy.dstPitch = 4;
  EXPECT_EQ(cuMemcpy2DUnaligned(&copy), CUDA_ERROR_INVALID_VALUE) << "rows overlap";
  EXPECT_EQ(cuMemcpy2DUnaligned(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(content(to), expected);
}

TEST_IN_CONTEXT(Copies, EitherEndOfAUnifiedCopyMayBeTheHost) {
  const CUdeviceptr host = pinned(counted()), back = pinned(filled(0)), memory = holding(filled(0xee));
  expect_in_order(memory, filled(0xee),
                  [&](CUstream stream) { return cuMemcpyAsync(memory, host, kSize, stream); });
  EXPECT_EQ(content(memory), counted());
  EXPECT_CU(cuMemcpyAsync(back, memory, kSize, nullptr));
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(std::memcmp(reinterpret_cast<void*>(back), counted().data(), kSize), 0);
  Buffer pageable(kSize);
  EXPECT_CU(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(pageable.data()), memory, kSize, nullptr));
  EXPECT_EQ(pageable, counted()) << "done on return where the host's memory may move";
  EXPECT_EQ(cuMemcpyAsync(memory, 0, kSize, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyAsync(memory, host, kSize, kNoStream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuMemcpyAsync(memory, host, 1ULL << 40, nullptr), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuCtxSetCurrent(nullptr));
  EXPECT_EQ(cuMemcpyAsync(memory, host, kSize, nullptr), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_IN_PROCESS(Copies, PeerCopyMovesMemoryBetweenDevicesInStreamOrder) {
  enter_primary(1);
  const CUdeviceptr to = holding(filled(0xee));
  enter_primary(0);
  const CUcontext first = context_of(0), second = context_of(1);
  const CUdeviceptr from = holding(counted()), host = pinned(counted());
  expect_in_order(to, filled(0xee),
                  [&](CUstream stream) { return cuMemcpyPeerAsync(to, second, from, first, kSize, stream); });
  EXPECT_EQ(content(to), counted());
  EXPECT_EQ(cuMemcpyPeerAsync(to, kNoContext, from, first, kSize, nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuMemcpyPeerAsync(to, second, from, nullptr, kSize, nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuMemcpyPeerAsync(to, second, from, first, kSize, kNoStream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuMemcpyPeerAsync(0, second, host, first, kSize, nullptr), CUDA_ERROR_INVALID_VALUE);
  Buffer pageable(kSize);
  EXPECT_EQ(
      cuMemcpyPeerAsync(to, second, reinterpret_cast<CUdeviceptr>(pageable.data()), first, kSize, nullptr),
      CUDA_ERROR_INVALID_VALUE);
}

TEST_IN_CONTEXT(Copies, MemorySetsOfPairsOfBytesAreDoneInStreamOrder) {
  const CUdeviceptr memory = holding(filled(0xee));
  expect_in_order(memory, filled(0xee),
                  [&](CUstream stream) { return cuMemsetD16Async(memory + 2, 0x1234, 3, stream); });
  Buffer expected = filled(0xee);
  for (std::size_t i = 2; i < 8; ++i) expected[i] = i % 2 == 0 ? 0x34 : 0x12;
  EXPECT_EQ(content(memory), expected);
  EXPECT_EQ(cuMemsetD16Async(memory + 1, 1, 1, nullptr), CUDA_ERROR_INVALID_VALUE) << "not aligned";
  EXPECT_EQ(cuMemsetD16Async(memory, 1, kSize << 20, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD16Async(memory, 1, ~std::size_t{0}, nullptr), CUDA_ERROR_INVALID_VALUE) << "wraps";
  EXPECT_EQ(cuMemsetD16Async(memory, 1, 1, kNoStream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CU(cuMemsetD16Async(memory, 1, 0, nullptr));
  EXPECT_EQ(content(memory), expected);
}

/// Holds a call that fills rows with elements of one size to a naive model, and to what it must refuse.
template <class Element>
void expect_rows_filled(CUresult (*set)(CUdeviceptr, std::size_t, Element, std::size_t, std::size_t,
                                        CUstream),
                        Element value) {
  constexpr std::size_t kPitch = 64, kElements = 5, kRows = 3;
  const CUdeviceptr memory = holding(filled(0xee));
  const CUdeviceptr start = memory + 2 * sizeof(Element);
  expect_in_order(memory, filled(0xee),
                  [&](CUstream stream) { return set(start, kPitch, value, kElements, kRows, stream); });
  Buffer expected = filled(0xee);
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t i = 0; i < kElements; ++i) {
      std::memcpy(&expected[row * kPitch + (2 + i) * sizeof value], &value, sizeof value);
    }
  }
  EXPECT_EQ(content(memory), expected);
  if (sizeof(Element) > 1) {
    EXPECT_EQ(set(memory + 1, kPitch, value, 1, 1, nullptr), CUDA_ERROR_INVALID_VALUE) << "not aligned";
    EXPECT_EQ(set(memory, kPitch + 1, value, 1, 2, nullptr), CUDA_ERROR_INVALID_VALUE) << "nor the pitch";
  }
  EXPECT_EQ(set(memory, 4 * sizeof value, value, 5, 2, nullptr), CUDA_ERROR_INVALID_VALUE) << "rows overlap";
  EXPECT_EQ(set(memory, kPitch, value, 1, 1U << 20, nullptr), CUDA_ERROR_INVALID_VALUE) << "past the memory";
  EXPECT_EQ(set(0, kPitch, value, 1, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(set(memory, kPitch, value, 1, 1, kNoStream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CU(set(memory, kPitch, value, 1, 0, nullptr)) << "nothing to do";
  EXPECT_EQ(content(memory), expected);
}

TEST_IN_CONTEXT(Copies, RowsAreFilledInStreamOrderWithElementsOfEverySize) {
  expect_rows_filled<unsigned char>(cuMemsetD2D8Async, 0x12);
  expect_rows_filled<unsigned short>(cuMemsetD2D16Async, 0x1234);
  expect_rows_filled<unsigned int>(cuMemsetD2D32Async, 0x12345678);
}

#if CUDA_VERSION >= 13000
TEST_IN_CONTEXT(Copies, DiscardedRangesAreTakenToTheirPlacesInTurn) {
  CUdeviceptr memory = 0, plain = holding(counted());
  ASSERT_CU(cuMemAllocManaged(&memory, 2 * kPage, CU_MEM_ATTACH_GLOBAL));
  const auto prefetched_to = [&](CUdeviceptr start) {
    int device = -99;
    EXPECT_CU(cuMemRangeGetAttribute(&device, sizeof device, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                                     start, kPage));
    return device;
  };
  CUdeviceptr starts[] = {memory, memory + kPage};
  std::size_t sizes[] = {kPage, kPage}, first[] = {0, 1};
  CUmemLocation places[] = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, {CU_MEM_LOCATION_TYPE_HOST, 0}};
  const CUstream stream = stream_apart();
  const auto call = [&](CUstream where) {
    return cuMemDiscardAndPrefetchBatchAsync(starts, sizes, 2, places, first, 2, 0, where);
  };
  EXPECT_CU(call(stream));
  EXPECT_CU(cuStreamSynchronize(stream));
  EXPECT_EQ(prefetched_to(memory), 1);
  EXPECT_EQ(prefetched_to(memory + kPage), CU_DEVICE_CPU);

  places[0].id = 0;
  EXPECT_EQ(call(nullptr), CUDA_ERROR_INVALID_VALUE) << "the default stream has no such order";
  EXPECT_EQ(call(kNoStream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuMemDiscardAndPrefetchBatchAsync(starts, sizes, 2, places, first, 2, 1, stream),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemDiscardAndPrefetchBatchAsync(nullptr, sizes, 2, places, first, 2, 0, stream),
            CUDA_ERROR_INVALID_VALUE);
  first[1] = 2;
  EXPECT_EQ(call(stream), CUDA_ERROR_INVALID_VALUE) << "a place of no range";
  first[1] = 1;
  places[1] = {CU_MEM_LOCATION_TYPE_DEVICE, 2};
  EXPECT_EQ(call(stream), CUDA_ERROR_INVALID_DEVICE);
  starts[1] = plain;
  EXPECT_EQ(call(stream), CUDA_ERROR_INVALID_VALUE) << "not managed";
  EXPECT_EQ(prefetched_to(memory), 1) << "what was refused has changed nothing";
}
#endif

}  // namespace
}  // namespace gpumem::sim::test
