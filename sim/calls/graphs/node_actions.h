#pragma once
#include <cuda.h>

#include "sim/driver/driver.h"

namespace gpumem::sim {

// Reads the program's descriptions of graph nodes. A context of nullptr is the current one.
// Errors  CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_CONTEXT; CUDA_ERROR_NOT_SUPPORTED: arrays.

CUresult read_copy(Call& driver, const CUDA_MEMCPY3D* given, CUcontext context, Action* out);
CUresult read_fill(Call& driver, const CUDA_MEMSET_NODE_PARAMS* given, CUcontext context, Action* out);
CUresult read_host(const CUDA_HOST_NODE_PARAMS* given, Action* out);
CUresult read_record(Call& driver, CUevent event, Action* out);
CUresult read_wait(Call& driver, CUevent event, Action* out);
/// A copy of the graph.
CUresult read_child(Call& driver, CUgraph graph, Action* out);

/// An allocation of the graph's, whose address is put into `given`, and what frees one.
/// Errors  also CUDA_ERROR_OUT_OF_MEMORY; CUDA_ERROR_INVALID_VALUE: no such allocation, or it is freed by
/// this graph already, or by one that keeps this one from it.
CUresult read_allocation(Call& driver, Graph& graph, CUDA_MEM_ALLOC_NODE_PARAMS* given, Action* out);
CUresult read_free(Call& driver, Graph& graph, CUdeviceptr address, Action* out);

CUDA_MEM_ALLOC_NODE_PARAMS write_allocation(const GraphAllocation& allocation);
CUDA_MEMSET_NODE_PARAMS write_fill(const Fill& fill);

#if CUDA_VERSION >= 12020
/// Any of them, by its type, for a node of `graph`; nullptr: for one that is there, so that memory is neither
/// allocated nor freed. Errors  also CUDA_ERROR_NOT_SUPPORTED: a type that is not simulated.
CUresult read_action(Call& driver, Graph* graph, CUgraphNodeParams& given, Action* out);
#endif

}  // namespace gpumem::sim
