// The settings of contexts, and access to peers' memory.
#include <cuda.h>

#include <iterator>

#include "calls.h"
#include "sim/calls/find_object.h"

namespace gpumem::sim {

CUresult api::cuCtxGetApiVersion(CUcontext named, unsigned int* version) {
  return with_context(named, [&](Call&, const Context&) {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
  });
}

#if CUDA_VERSION >= 12000
CUresult api::cuCtxGetId(CUcontext named, unsigned long long* id) {
  return with_context(named, [&](Call&, const Context& context) {
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *id = context.number;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuCtxSetFlags(unsigned int flags) {
  return with_current([&](Call&, Context& context) {
    if ((flags & ~unsigned{CU_CTX_FLAGS_MASK}) != 0) return CUDA_ERROR_INVALID_VALUE;
    context.flags = flags;
    return CUDA_SUCCESS;
  });
}
#endif

CUresult api::cuCtxGetFlags(unsigned int* flags) {
  return with_current([&](Call&, const Context& context) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = context.flags;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuCtxGetLimit(size_t* value, CUlimit limit) {
  return with_current([&](Call&, const Context& context) {
    const auto index = static_cast<unsigned>(limit);
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (index >= std::size(context.limits)) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = context.limits[index];
    return CUDA_SUCCESS;
  });
}

CUresult api::cuCtxSetLimit(CUlimit limit, size_t value) {
  return with_current([&](Call&, Context& context) {
    const auto index = static_cast<unsigned>(limit);
    if (index >= std::size(context.limits)) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    context.limits[index] = value;
    return CUDA_SUCCESS;
  });
}

/// Without kernels there is no cache to prefer; what is set is told again.
CUresult api::cuCtxGetCacheConfig(CUfunc_cache* config) {
  return with_current([&](Call&, const Context& context) {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *config = context.cache;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuCtxSetCacheConfig(CUfunc_cache config) {
  return with_current([&](Call&, Context& context) {
    if (static_cast<unsigned>(config) > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
    context.cache = config;
    return CUDA_SUCCESS;
  });
}

/// The width of the banks is fixed since the Maxwell chips.
CUresult api::cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  return with_current([&](Call&, const Context&) {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return CUDA_SUCCESS;
  });
}
CUresult api::cuCtxSetSharedMemConfig(CUsharedconfig config) {
  return with_current([&](Call&, const Context&) {
    const bool is_known = static_cast<unsigned>(config) <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
    return is_known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult api::cuCtxResetPersistingL2Cache() {
  return with_current([](Call&, const Context&) { return CUDA_SUCCESS; });
}

/// Only clients of MPS can be given a part of the multiprocessors.
CUresult api::cuCtxGetExecAffinity(CUexecAffinityParam* out, CUexecAffinityType type) {
  return with_current([&](Call&, const Context&) {
    const bool is_known = static_cast<unsigned>(type) < CU_EXEC_AFFINITY_TYPE_MAX;
    return out != nullptr && is_known ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : CUDA_ERROR_INVALID_VALUE;
  });
}

/// Every write is seen by all at once here.
CUresult api::cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                         CUflushGPUDirectRDMAWritesScope scope) {
  return with_current([&](Call&, const Context&) {
    const bool is_known = target == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX &&
                          (scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER ||
                           scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES);
    return is_known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult api::cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  return with_current([&](Call& driver, Context& context) {
    const Context* const other = driver->contexts.find(peer);
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (other == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (other->ordinal == context.ordinal) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return context.peers.insert(other->id).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  });
}

CUresult api::cuCtxDisablePeerAccess(CUcontext peer) {
  return with_current([&](Call& driver, Context& context) {
    const Context* const other = driver->contexts.find(peer);
    if (other == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return context.peers.erase(other->id) == 1 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  });
}

}  // namespace gpumem::sim
