// Copies of boxes within boxes, held against a naive model.
#include "tests/sim/memory/copy_support.h"

namespace gpumem::sim::test {
namespace {

class CopiesOfBoxes : public SimTest {
 protected:
  CopiesOfBoxes() : SimTest("2x64MiB") {}
};

/// A box of bytes within a larger one.
struct Box {
  std::size_t x, y, z, pitch, height;

  std::size_t at(std::size_t column, std::size_t row, std::size_t slice) const {
    return ((z + slice) * height + y + row) * pitch + x + column;
  }
};

constexpr std::size_t kWidth = 3, kHeight = 4, kDepth = 2;
constexpr Box kFrom{.x = 2, .y = 1, .z = 1, .pitch = 16, .height = 8};
constexpr Box kTo{.x = 1, .y = 2, .z = 3, .pitch = 32, .height = 7};

/// What `to` holds after a copy of the box out of `from`.
Buffer boxes_copied(const Buffer& from, Buffer to) {
  for (std::size_t slice = 0; slice < kDepth; ++slice) {
    for (std::size_t row = 0; row < kHeight; ++row) {
      for (std::size_t column = 0; column < kWidth; ++column) {
        to[kTo.at(column, row, slice)] = from[kFrom.at(column, row, slice)];
      }
    }
  }
  return to;
}

/// Both forms of the struct have these members.
template <class Copy>
Copy box_copy(CUdeviceptr to, CUdeviceptr from) {
  Copy copy{};
  copy.srcXInBytes = kFrom.x;
  copy.srcY = kFrom.y;
  copy.srcZ = kFrom.z;
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.srcPitch = kFrom.pitch;
  copy.srcHeight = kFrom.height;
  copy.dstXInBytes = kTo.x;
  copy.dstY = kTo.y;
  copy.dstZ = kTo.z;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  copy.dstPitch = kTo.pitch;
  copy.dstHeight = kTo.height;
  copy.WidthInBytes = kWidth;
  copy.Height = kHeight;
  copy.Depth = kDepth;
  return copy;
}

/// Copies that make no sense; each is refused by `call` and leaves `memory` as it is.
template <class Copy, class Call>
void expect_bad_boxes_refused(const Copy& good, CUdeviceptr memory, const Call& call) {
  const Buffer before = content(memory);
  const auto refused = [&](auto change) {
    Copy copy = good;
    change(copy);
    return call(&copy);
  };
  EXPECT_EQ(call(static_cast<const Copy*>(nullptr)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](Copy& c) { c.dstPitch = kWidth; }), CUDA_ERROR_INVALID_VALUE) << "rows overlap";
  EXPECT_EQ(refused([](Copy& c) { c.Depth = 1000; }), CUDA_ERROR_INVALID_VALUE) << "past the memory";
  EXPECT_EQ(refused([](Copy& c) { c.dstDevice = 0; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](Copy& c) { c.srcMemoryType = static_cast<CUmemorytype>(7); }),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](Copy& c) { c.srcMemoryType = CU_MEMORYTYPE_ARRAY; }), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_CU(refused([](Copy& c) { c.Height = 0; })) << "nothing to do";
  EXPECT_EQ(content(memory), before);
}

TEST_IN_CONTEXT(CopiesOfBoxes, BoxesAreCopiedOutOfBoxesIntoBoxes) {
  const CUdeviceptr from = holding(counted()), to = holding(filled(0xee));
  const auto copy = box_copy<CUDA_MEMCPY3D>(to, from);
  EXPECT_CU(cuMemcpy3D(&copy));
  EXPECT_EQ(content(to), boxes_copied(counted(), filled(0xee)));
  EXPECT_EQ(content(from), counted());
  expect_bad_boxes_refused(copy, to, [](const CUDA_MEMCPY3D* bad) { return cuMemcpy3D(bad); });
}

TEST_IN_CONTEXT(CopiesOfBoxes, BoxesAreCopiedFromTheHostAndBack) {
  const CUdeviceptr memory = holding(filled(0xee));
  const Buffer from = counted();
  auto in = box_copy<CUDA_MEMCPY3D>(memory, 0);
  in.srcMemoryType = CU_MEMORYTYPE_HOST;
  in.srcHost = from.data();
  EXPECT_CU(cuMemcpy3D(&in));
  EXPECT_EQ(content(memory), boxes_copied(from, filled(0xee)));
  Buffer to = filled(0xdd);
  auto out = box_copy<CUDA_MEMCPY3D>(0, holding(from));
  out.dstMemoryType = CU_MEMORYTYPE_HOST;
  out.dstHost = to.data();
  EXPECT_CU(cuMemcpy3D(&out));
  EXPECT_EQ(to, boxes_copied(from, filled(0xdd)));
}

TEST_IN_CONTEXT(CopiesOfBoxes, BoxesAreCopiedInStreamOrder) {
  const CUdeviceptr from = holding(counted()), to = holding(filled(0xee));
  const auto copy = box_copy<CUDA_MEMCPY3D>(to, from);
  expect_in_order(to, filled(0xee), [&](CUstream stream) { return cuMemcpy3DAsync(&copy, stream); });
  EXPECT_EQ(content(to), boxes_copied(counted(), filled(0xee)));
  expect_bad_boxes_refused(copy, to, [](const CUDA_MEMCPY3D* bad) { return cuMemcpy3DAsync(bad, nullptr); });
  EXPECT_EQ(cuMemcpy3DAsync(&copy, kNoStream), CUDA_ERROR_INVALID_HANDLE);
}

TEST_IN_PROCESS(CopiesOfBoxes, BoxesAreCopiedBetweenDevices) {
  enter_primary(1);
  const CUdeviceptr to = holding(filled(0xee)), other = holding(filled(0xdd));
  enter_primary(0);
  const CUdeviceptr from = holding(counted());
  auto copy = box_copy<CUDA_MEMCPY3D_PEER>(to, from);
  copy.srcContext = context_of(0);
  copy.dstContext = context_of(1);
  EXPECT_CU(cuMemcpy3DPeer(&copy));
  EXPECT_EQ(content(to), boxes_copied(counted(), filled(0xee)));
  expect_bad_boxes_refused(copy, to, [](const CUDA_MEMCPY3D_PEER* bad) { return cuMemcpy3DPeer(bad); });

  copy.dstDevice = other;
  expect_in_order(other, filled(0xdd), [&](CUstream stream) { return cuMemcpy3DPeerAsync(&copy, stream); });
  EXPECT_EQ(content(other), boxes_copied(counted(), filled(0xdd)));
  expect_bad_boxes_refused(copy, other,
                           [](const CUDA_MEMCPY3D_PEER* bad) { return cuMemcpy3DPeerAsync(bad, nullptr); });
  EXPECT_EQ(cuMemcpy3DPeerAsync(&copy, kNoStream), CUDA_ERROR_INVALID_HANDLE);
  copy.srcContext = kNoContext;
  EXPECT_EQ(cuMemcpy3DPeer(&copy), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuMemcpy3DPeerAsync(&copy, nullptr), CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
}  // namespace gpumem::sim::test
