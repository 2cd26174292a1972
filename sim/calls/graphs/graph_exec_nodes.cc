// The nodes of executable graphs: changed, switched on and off. They are named by the nodes of the graph that
// was instantiated.
#include <cuda.h>

#include <utility>

#include "calls.h"
#include "sim/calls/graphs/find_graph.h"
#include "sim/calls/graphs/node_actions.h"

namespace gpumem::sim {
namespace {

/// Finds the executable graph's own node for `act(driver, node)`.
template <class Act>
CUresult with_copy(CUgraphExec named, CUgraphNode original, Act act) {
  return with_exec(named, [&](Call& driver, GraphExec& exec) {
    GraphNode* const node = find_copy(*exec.graph, number(original));
    return node == nullptr ? CUDA_ERROR_INVALID_VALUE : act(driver, *node);
  });
}

/// Makes the node do what `read(driver, action)` describes from the next launch on; its type stays.
template <class Read>
CUresult set(CUgraphExec exec, CUgraphNode original, Read read) {
  return with_copy(exec, original, [&](Call& driver, GraphNode& node) {
    Action action;
    const CUresult result = read(driver, &action);
    if (result != CUDA_SUCCESS) return result;
    if (action.index() != node.action.index()) return CUDA_ERROR_INVALID_VALUE;
    node.action = std::move(action);
    return CUDA_SUCCESS;
  });
}

bool can_be_disabled(const GraphNode& node) {
  return std::holds_alternative<CopyAction>(node.action) || std::holds_alternative<FillAction>(node.action);
}

}  // namespace

CUresult api::cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* given,
                                             CUcontext context) {
  return set(exec, node,
             [&](Call& driver, Action* action) { return read_copy(driver, given, context, action); });
}

CUresult api::cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                             const CUDA_MEMSET_NODE_PARAMS* given, CUcontext context) {
  return set(exec, node,
             [&](Call& driver, Action* action) { return read_fill(driver, given, context, action); });
}

CUresult api::cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_HOST_NODE_PARAMS* given) {
  return set(exec, node, [&](Call&, Action* action) { return read_host(given, action); });
}

CUresult api::cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return set(exec, node, [&](Call& driver, Action* action) { return read_record(driver, event, action); });
}

CUresult api::cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return set(exec, node, [&](Call& driver, Action* action) { return read_wait(driver, event, action); });
}

#if CUDA_VERSION >= 12020
CUresult api::cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* given) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (given->type == CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_ERROR_NOT_SUPPORTED;
  return set(exec, node,
             [&](Call& driver, Action* action) { return read_action(driver, nullptr, *given, action); });
}
#endif

/// Only copies and fills can be switched off, as on the real driver, which can do so with kernels too.
CUresult api::cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode original, unsigned int is_enabled) {
  return with_copy(exec, original, [&](Call&, GraphNode& node) {
    if (!can_be_disabled(node)) return CUDA_ERROR_INVALID_VALUE;
    node.is_enabled = is_enabled != 0;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode original, unsigned int* is_enabled) {
  return with_copy(exec, original, [&](Call&, const GraphNode& node) {
    if (is_enabled == nullptr || !can_be_disabled(node)) return CUDA_ERROR_INVALID_VALUE;
    *is_enabled = node.is_enabled ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

}  // namespace gpumem::sim
