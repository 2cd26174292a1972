#pragma once
#include <cuda.h>

// Functions that drivers export and cuda.h does not declare. It defines the forms for the per-thread default
// stream as inline functions under these names, if at all.
extern "C" {
CUresult cuGetProcAddress_ptsz(const char* symbol, void** pfn, int version, cuuint64_t flags);
#if CUDA_VERSION >= 12000
CUresult cuGetProcAddress_v2_ptsz(const char* symbol, void** pfn, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult* status);
#endif
}
