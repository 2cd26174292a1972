// Streams that write words and wait for them, copy in batches, and keep attributes.
#include <cuda.h>

#include <cstdint>
#include <vector>

#include "tests/sim/sim_fixture.h"

namespace gpumem::sim::test {
namespace {

class StreamValues : public SimTest {
 protected:
  static void enter() {
    CUcontext context{};
    ASSERT_CU(cuInit(0));
    ASSERT_CU(cuDevicePrimaryCtxRetain(&context, 0));
    ASSERT_CU(cuCtxSetCurrent(context));
  }
  static CUstream stream() {
    CUstream made{};
    EXPECT_CU(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
  }
  static CUdeviceptr words() {
    CUdeviceptr address = 0;
    EXPECT_CU(cuMemAlloc(&address, 4096));
    EXPECT_CU(cuMemsetD8(address, 0, 4096));
    return address;
  }
  template <class Word>
  static Word read(CUdeviceptr address) {
    Word word = 0;
    EXPECT_CU(cuMemcpyDtoH(&word, address, sizeof word));
    return word;
  }
};

TEST_IN_PROCESS(StreamValues, WritesAreDoneInTheOrderOfTheStream) {
  enter();
  const CUstream queue = stream();
  const CUdeviceptr word = words();
  EXPECT_CU(cuStreamWriteValue32(queue, word, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  EXPECT_CU(cuStreamWriteValue32(queue, word, 2, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
  EXPECT_CU(cuStreamWriteValue64(queue, word + 8, 1ULL << 40, CU_STREAM_WRITE_VALUE_DEFAULT));
  EXPECT_CU(cuStreamSynchronize(queue));
  EXPECT_EQ(read<std::uint32_t>(word), 2U);
  EXPECT_EQ(read<std::uint64_t>(word + 8), 1ULL << 40);
}

TEST_IN_PROCESS(StreamValues, WaitHoldsItsStreamUpUntilAnotherOneWrites) {
  enter();
  const CUstream waiting = stream(), writing = stream();
  const CUdeviceptr word = words();
  EXPECT_CU(cuStreamWaitValue32(waiting, word, 5, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_CU(cuStreamWriteValue32(waiting, word + 4, 1, 0));
  EXPECT_EQ(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(read<std::uint32_t>(word + 4), 0U);
  EXPECT_CU(cuStreamWriteValue32(writing, word, 5, 0));
  EXPECT_CU(cuStreamSynchronize(waiting));
  EXPECT_EQ(read<std::uint32_t>(word + 4), 1U);
}

TEST_IN_PROCESS(StreamValues, HostLetsAStreamGoOnThroughPinnedMemory) {
  enter();
  const CUstream queue = stream();
  void* pinned = nullptr;
  ASSERT_CU(cuMemHostAlloc(&pinned, 64, CU_MEMHOSTALLOC_DEVICEMAP));
  auto* const word = static_cast<volatile std::uint64_t*>(pinned);
  CUdeviceptr address = 0;
  ASSERT_CU(cuMemHostGetDevicePointer(&address, pinned, 0));
  EXPECT_CU(cuStreamWaitValue64(queue, address, 3, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_EQ(cuStreamQuery(queue), CUDA_ERROR_NOT_READY);
  *word = 4;
  EXPECT_CU(cuStreamSynchronize(queue));
}

TEST_IN_PROCESS(StreamValues, ConditionsAreThoseOfTheirFlags) {
  enter();
  const CUstream queue = stream(), other = stream();
  const CUdeviceptr word = words();
  const auto is_held = [&](std::uint32_t value, std::uint32_t wanted, unsigned flags, std::uint32_t cure) {
    EXPECT_CU(cuMemsetD32(word, value, 1));
    EXPECT_CU(cuStreamWaitValue32(queue, word, wanted, flags));
    EXPECT_EQ(cuStreamQuery(queue), CUDA_ERROR_NOT_READY) << flags;
    EXPECT_CU(cuStreamWriteValue32(other, word, cure, 0));
    EXPECT_CU(cuStreamSynchronize(queue));
  };
  is_held(9, 10, CU_STREAM_WAIT_VALUE_GEQ, 10);
  is_held(0xfffffff0, 2, CU_STREAM_WAIT_VALUE_GEQ, 3);  // cyclic
  is_held(4, 3, CU_STREAM_WAIT_VALUE_EQ, 3);
  is_held(4, 3, CU_STREAM_WAIT_VALUE_AND, 2);
  is_held(0xff, 0xffffff00, CU_STREAM_WAIT_VALUE_NOR, 0xfe);
  is_held(4, 3,
          static_cast<unsigned>(CU_STREAM_WAIT_VALUE_EQ) | static_cast<unsigned>(CU_STREAM_WAIT_VALUE_FLUSH),
          3);
}

TEST_IN_PROCESS(StreamValues, BatchesAreDoneInOrder) {
  enter();
  const CUstream queue = stream();
  const CUdeviceptr word = words();
  CUstreamBatchMemOpParams operations[4]{};
  operations[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operations[0].writeValue.address = word;
  operations[0].writeValue.value = 6;
  operations[1].memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
  operations[2].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operations[2].waitValue.address = word;
  operations[2].waitValue.value = 6;
  operations[2].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  operations[3].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  operations[3].writeValue.address = word + 8;
  operations[3].writeValue.value64 = 7;
  EXPECT_CU(cuStreamBatchMemOp(queue, 4, operations, 0));
  EXPECT_CU(cuStreamSynchronize(queue));
  EXPECT_EQ(read<std::uint64_t>(word + 8), 7U);
  EXPECT_EQ(cuStreamBatchMemOp(queue, 256, operations, 0), CUDA_ERROR_INVALID_VALUE);
  operations[1].operation = static_cast<CUstreamBatchMemOpType>(7);
  EXPECT_EQ(cuStreamBatchMemOp(queue, 4, operations, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_IN_PROCESS(StreamValues, AttributesAreKeptAndCopied) {
  enter();
  const CUstream one = stream(), other = stream();
  CUstreamAttrValue value{};
  EXPECT_CU(cuStreamGetAttribute(one, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  EXPECT_EQ(value.syncPolicy, CU_SYNC_POLICY_AUTO);
  value.syncPolicy = CU_SYNC_POLICY_YIELD;
  EXPECT_CU(cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  EXPECT_CU(cuStreamCopyAttributes(other, one));
  value = {};
  EXPECT_CU(cuStreamGetAttribute(other, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  EXPECT_EQ(value.syncPolicy, CU_SYNC_POLICY_YIELD);
  EXPECT_EQ(cuStreamGetAttribute(one, static_cast<CUstreamAttrID>(2), &value), CUDA_ERROR_INVALID_VALUE);
}

#if CUDA_VERSION >= 13000
TEST_IN_PROCESS(StreamValues, BatchesOfCopiesAreDone) {
  enter();
  const CUstream queue = stream();
  const CUdeviceptr memory = words();
  std::vector<int> in = {1, 2}, out(2);
  CUdeviceptr to[] = {memory, memory + 4},
              from[] = {reinterpret_cast<CUdeviceptr>(&in[0]), reinterpret_cast<CUdeviceptr>(&in[1])};
  std::size_t sizes[] = {4, 4}, first[] = {0};
  CUmemcpyAttributes attributes[1]{};
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  EXPECT_CU(cuMemcpyBatchAsync(to, from, sizes, 2, attributes, first, 1, queue));
  EXPECT_CU(cuMemcpyDtoH(out.data(), memory, 8));
  EXPECT_EQ(out, in);
  EXPECT_EQ(cuMemcpyBatchAsync(to, from, sizes, 2, attributes, first, 0, queue), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyBatchAsync(to, from, sizes, 2, attributes, first, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
}
#endif

}  // namespace
}  // namespace gpumem::sim::test
