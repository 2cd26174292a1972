#pragma once
#include <cuda.h>

// The driver exports these, but it is cudaProfiler.h that declares them, which neither NVIDIA's header
// packages nor every toolkit hold (and cuProfilerInitialize is gone from it in some). Programs link them by
// name, so they must be exported whatever headers this is built with. CUoutput_mode is declared there as
// well; in a call it is an int.
extern "C" {
CUresult cuProfilerInitialize(const char* config, const char* output, int mode);
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);
}
