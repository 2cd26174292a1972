// Many copies at once: they are done one after the other in the order of the stream.
#include <cuda.h>

#include <cstdint>

#include "calls.h"

#if CUDA_VERSION >= 12080
namespace gpumem::sim {
namespace {

struct Copies {
  CUdeviceptr* to;
  CUdeviceptr* from;
  size_t* sizes;
  size_t count;
  CUmemcpyAttributes* attributes;
  size_t* first;  ///< the first copy of each of the attributes
  size_t attribute_count;
};

bool is_valid(const Copies& batch) {
  if (batch.to == nullptr || batch.from == nullptr || batch.sizes == nullptr || batch.count == 0)
    return false;
  if (batch.attributes == nullptr || batch.first == nullptr || batch.attribute_count == 0) return false;
  if (batch.attribute_count > batch.count || batch.first[0] != 0) return false;
  for (size_t i = 0; i < batch.attribute_count; ++i) {
    const CUmemcpySrcAccessOrder order = batch.attributes[i].srcAccessOrder;
    if (order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY) return false;
    if (batch.first[i] >= batch.count || (i > 0 && batch.first[i] <= batch.first[i - 1])) return false;
  }
  return true;
}

bool must_be_read_now(const Copies& batch) {
  for (size_t i = 0; i < batch.attribute_count; ++i) {
    if (batch.attributes[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL) return true;
  }
  return false;
}

/// `failed`  where the index of a copy that is refused goes; SIZE_MAX: it is the batch.
CUresult copy(const Copies& batch, CUstream stream, size_t* failed) {
  *failed = SIZE_MAX;
  const bool is_named = stream != nullptr && stream != CU_STREAM_LEGACY;
  if (!is_named || !is_valid(batch)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < batch.count; ++i) {
    const CUresult result = api::cuMemcpyAsync(batch.to[i], batch.from[i], batch.sizes[i], stream);
    if (result == CUDA_SUCCESS) continue;
    *failed = i;
    return result;
  }
  return must_be_read_now(batch) ? api::cuStreamSynchronize(stream) : CUDA_SUCCESS;
}

}  // namespace

// The parameters are the driver's. NOLINTNEXTLINE(readability-function-size)
CUresult api::cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                                 CUmemcpyAttributes* attributes, size_t* first, size_t attribute_count,
                                 size_t* failed, CUstream stream) {
  size_t unasked = 0;
  return copy({to, from, sizes, count, attributes, first, attribute_count}, stream,
              failed == nullptr ? &unasked : failed);
}

#if CUDA_VERSION >= 13000
CUresult api::cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                                    CUmemcpyAttributes* attributes, size_t* first, size_t attribute_count,
                                    CUstream stream) {
  size_t failed = 0;
  return copy({to, from, sizes, count, attributes, first, attribute_count}, stream, &failed);
}
#endif

}  // namespace gpumem::sim
#endif
