// Fills and copies: element sizes, rows with a pitch, either side.
#include <numeric>

#include "tests/contract/driver/streams.h"

namespace gpumem::contract {
namespace {

using Copies = DriverTest;

template <class Element>
std::vector<Element> read(CUdeviceptr from, std::size_t count) {
  std::vector<Element> seen(count);
  must(calls().cuMemcpyDtoH(seen.data(), from, count * sizeof(Element)));
  return seen;
}

TEST_IN_CONTEXT(Copies, FillByOneTwoAndFourBytes) {
  const std::size_t count = 1000;
  const DeviceMemory memory(4 * count + 4);
  must(calls().cuMemsetD8(memory, 0, 4 * count + 4));
  must(calls().cuMemsetD8(memory, 0xab, count));
  EXPECT_EQ(read<std::uint8_t>(memory, count), std::vector<std::uint8_t>(count, 0xab));
  must(calls().cuMemsetD16(memory, 0xabcd, count));
  EXPECT_EQ(read<std::uint16_t>(memory, count), std::vector<std::uint16_t>(count, 0xabcd));
  must(calls().cuMemsetD32(memory, 0xabcdef01, count));
  EXPECT_EQ(read<std::uint32_t>(memory, count), std::vector<std::uint32_t>(count, 0xabcdef01));
  EXPECT_EQ(read<std::uint32_t>(memory + 4 * count, 1).front(), 0U) << "not a byte past the end";
}

TEST_IN_CONTEXT(Copies, FillOnlyAlignedElements) {
  const DeviceMemory memory(4096);
  EXPECT_EQ(calls().cuMemsetD16(memory + 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls().cuMemsetD32(memory + 2, 1, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_IN_CONTEXT(Copies, TakeAnyOffsetAndLength) {
  std::vector<std::uint8_t> bytes(100'000);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  const DeviceMemory from(bytes.size()), to(bytes.size());
  must(calls().cuMemcpyHtoD(from, bytes.data(), bytes.size()));
  must(calls().cuMemsetD8(to, 0xff, bytes.size()));
  must(calls().cuMemcpyDtoD(to + 3, from + 1, 777));
  const auto seen = read<std::uint8_t>(to, 1000);
  EXPECT_EQ(seen[2], 0xff);
  EXPECT_TRUE(std::equal(seen.begin() + 3, seen.begin() + 780, bytes.begin() + 1));
  EXPECT_EQ(seen[780], 0xff);
}

TEST_IN_CONTEXT(Copies, KnowEitherSideByItsAddress) {
  const DeviceMemory memory(64);
  PinnedNumbers from(16), to(16);
  std::iota(from.data(), from.data() + 16, 5U);
  must(calls().cuMemcpy(memory, reinterpret_cast<CUdeviceptr>(from.data()), 64));
  must(calls().cuMemcpy(reinterpret_cast<CUdeviceptr>(to.data()), memory, 64));
  EXPECT_TRUE(std::equal(from.data(), from.data() + 16, to.data()));
}

TEST_IN_CONTEXT(Copies, OfNothingSucceed) {
  const DeviceMemory memory(64);
  char byte = 1;
  EXPECT_OK(calls().cuMemcpyHtoD(memory, &byte, 0));
  EXPECT_OK(calls().cuMemsetD8(memory, 1, 0));
}

TEST_IN_CONTEXT(Copies, OfRowsLeaveThePaddingAlone) {
  constexpr std::size_t kWidth = 100, kRows = 7;
  CUdeviceptr memory = 0;
  std::size_t pitch = 0;
  ASSERT_OK(calls().cuMemAllocPitch(&memory, &pitch, kWidth, kRows, 4));
  EXPECT_GE(pitch, kWidth);
  EXPECT_EQ(pitch % 4, 0U);
  must(calls().cuMemsetD8(memory, 0xee, pitch * kRows));
  std::vector<std::uint8_t> image(kWidth * kRows);
  std::iota(image.begin(), image.end(), std::uint8_t{0});
  CUDA_MEMCPY2D there{};
  there.srcMemoryType = CU_MEMORYTYPE_HOST;
  there.srcHost = image.data();
  there.srcPitch = kWidth;
  there.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  there.dstDevice = memory;
  there.dstPitch = pitch;
  there.WidthInBytes = kWidth;
  there.Height = kRows;
  EXPECT_OK(calls().cuMemcpy2D(&there));
  const auto all = read<std::uint8_t>(memory, pitch * kRows);
  for (std::size_t row = 0; row < kRows; ++row) {
    const auto* const start = all.data() + row * pitch;
    EXPECT_TRUE(std::equal(start, start + kWidth, image.data() + row * kWidth)) << "row " << row;
    if (pitch > kWidth) {
      EXPECT_EQ(start[kWidth], 0xee) << "row " << row;
    }
  }
  EXPECT_OK(calls().cuMemFree(memory));
}

TEST_IN_CONTEXT(Copies, OfARectangleTakeJustThat) {
  constexpr std::size_t kSide = 64;
  const DeviceMemory from(kSide * kSide), to(kSide * kSide);
  must(calls().cuMemsetD8(from, 1, kSide * kSide));
  must(calls().cuMemsetD8(to, 0, kSide * kSide));
  const Stream stream;
  CUDA_MEMCPY2D part{};
  part.srcMemoryType = part.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  part.srcDevice = from;
  part.dstDevice = to;
  part.srcPitch = part.dstPitch = kSide;
  part.dstXInBytes = 10;
  part.dstY = 20;
  part.WidthInBytes = 5;
  part.Height = 3;
  EXPECT_OK(calls().cuMemcpy2DAsync(&part, stream));
  EXPECT_OK(calls().cuStreamSynchronize(stream));
  const auto seen = read<std::uint8_t>(to, kSide * kSide);
  EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), 15);
  EXPECT_EQ(seen[20 * kSide + 10], 1);
  EXPECT_EQ(seen[22 * kSide + 14], 1);
  part.srcPitch = 4;
  EXPECT_REFUSED(calls().cuMemcpy2D(&part)) << "rows longer than the pitch";
}

TEST_IN_CONTEXT(Copies, FillRowsOfEveryElementSize) {
  constexpr std::size_t kPitch = 512, kRows = 4;
  const DeviceMemory memory(kPitch * kRows);
  must(calls().cuMemsetD8(memory, 0, kPitch * kRows));
  EXPECT_OK(calls().cuMemsetD2D8(memory, kPitch, 0x11, 16, kRows));
  EXPECT_OK(calls().cuMemsetD2D16(memory + 16, kPitch, 0x2222, 8, kRows));
  EXPECT_OK(calls().cuMemsetD2D32(memory + 32, kPitch, 0x33333333, 4, kRows));
  const auto seen = read<std::uint8_t>(memory, kPitch * kRows);
  for (std::size_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(seen[row * kPitch], 0x11);
    EXPECT_EQ(seen[row * kPitch + 15], 0x11);
    EXPECT_EQ(seen[row * kPitch + 31], 0x22);
    EXPECT_EQ(seen[row * kPitch + 47], 0x33);
    EXPECT_EQ(seen[row * kPitch + 48], 0);
  }
}

}  // namespace
}  // namespace gpumem::contract
