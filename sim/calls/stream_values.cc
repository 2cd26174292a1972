// Streams that write words of memory, or wait for them.
#include <cuda.h>

#include <optional>
#include <utility>
#include <vector>

#include "calls.h"
#include "sim/calls/find_object.h"
#include "sim/driver/stream_values.h"

namespace gpumem::sim {
namespace {

using ValueKind = ValueOperation::Kind;
using Operations = std::vector<ValueOperation>;

constexpr unsigned kMostOperations = 255;

/// Does the operations one after the other, as one piece of work in the stream.
CUresult enqueue(CUstream stream, Operations operations) {
  return with_current([&](Call& driver, const Context& context) {
    StreamRef queue;
    if (const CUresult result = driver->queue(stream, &queue); result != CUDA_SUCCESS) return result;
    for (ValueOperation& operation : operations) {
      operation.device = driver->device(context.ordinal);
      if (const CUresult result = check(driver, operation); result != CUDA_SUCCESS) return result;
    }
    if (driver->captures.find(*queue) != nullptr) {
      driver->captures.add(*queue, ValuesAction{std::move(operations), context.id});
      return CUDA_SUCCESS;
    }
    driver->streams.submit(queue, [operations = std::move(operations), id = context.id] {
      const CUresult result = perform(operations);
      if (result != CUDA_SUCCESS) Driver::get().fail(id, result);
    });
    return CUDA_SUCCESS;
  });
}

/// Every write is seen by all at once here, so neither barriers nor flushes have anything to do.
std::optional<ValueOperation> operation(ValueKind kind, CUdeviceptr address, unsigned bytes,
                                        std::uint64_t value, unsigned flags) {
  const unsigned known = kind == ValueKind::kWrite
                             ? unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}
                             : unsigned{CU_STREAM_WAIT_VALUE_NOR} | unsigned{CU_STREAM_WAIT_VALUE_FLUSH};
  if ((flags & ~known) != 0) return std::nullopt;
  const unsigned condition = flags & ~unsigned{CU_STREAM_WAIT_VALUE_FLUSH};
  return ValueOperation{
      .kind = kind, .address = address, .bytes = bytes, .value = value, .condition = condition};
}

CUresult enqueue(CUstream stream, const std::optional<ValueOperation>& one) {
  return one ? enqueue(stream, Operations{*one}) : CUDA_ERROR_INVALID_VALUE;
}

/// Appends what `given` means; false if it means nothing.
bool append(const CUstreamBatchMemOpParams& given, Operations& to) {
  const auto& wait = given.waitValue;
  const auto& write = given.writeValue;
  std::optional<ValueOperation> read;
  switch (given.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      read = operation(ValueKind::kWait, wait.address, 4, wait.value, wait.flags);
      break;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      read = operation(ValueKind::kWait, wait.address, 8, wait.value64, wait.flags);
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      read = operation(ValueKind::kWrite, write.address, 4, write.value, write.flags);
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      read = operation(ValueKind::kWrite, write.address, 8, write.value64, write.flags);
      break;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: return given.flushRemoteWrites.flags == 0;
    case CU_STREAM_MEM_OP_BARRIER: return given.memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU;
    default: return false;
  }
  if (read) to.push_back(*read);
  return read.has_value();
}

}  // namespace

CUresult api::cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                      unsigned flags) {
  return enqueue(stream, operation(ValueKind::kWrite, address, 4, value, flags));
}
CUresult api::cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                      unsigned flags) {
  return enqueue(stream, operation(ValueKind::kWrite, address, 8, value, flags));
}
CUresult api::cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return enqueue(stream, operation(ValueKind::kWait, address, 4, value, flags));
}
CUresult api::cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return enqueue(stream, operation(ValueKind::kWait, address, 8, value, flags));
}

CUresult api::cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* given,
                                    unsigned flags) {
  if (given == nullptr || count == 0 || count > kMostOperations || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Operations operations;
  for (unsigned i = 0; i < count; ++i) {
    if (!append(given[i], operations)) return CUDA_ERROR_INVALID_VALUE;
  }
  return enqueue(stream, std::move(operations));
}

}  // namespace gpumem::sim
