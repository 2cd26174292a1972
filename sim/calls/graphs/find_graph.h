#pragma once
#include <cuda.h>

#include <utility>
#include <variant>
#include <vector>

#include "sim/driver/driver.h"

namespace gpumem::sim {

/// Finds the graph that `named` names for `act(driver, graph)`, or answers that there is none.
template <class Act>
CUresult with_graph(CUgraph named, Act act) {
  Call driver;
  if (!driver) return driver.error();
  Graph* const graph = driver->graphs.find(named);
  return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : act(driver, *graph);
}

/// Finds the node for `act(driver, node)`.
template <class Act>
CUresult with_node(CUgraphNode named, Act act) {
  Call driver;
  if (!driver) return driver.error();
  GraphNode* const node = driver->graphs.find(named);
  return node == nullptr ? CUDA_ERROR_INVALID_VALUE : act(driver, *node);
}

/// Finds the executable graph for `act(driver, exec)`.
template <class Act>
CUresult with_exec(CUgraphExec named, Act act) {
  Call driver;
  if (!driver) return driver.error();
  GraphExec* const exec = driver->execs.find(named);
  return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : act(driver, *exec);
}

/// The numbers of nodes of `graph` that a program names. False if one is none of it, or is there twice.
bool find_nodes(const Graph& graph, const CUgraphNode* given, size_t count, std::vector<NodeNumber>* out);

/// Where a program wants a node.
struct NodePosition {
  CUgraph graph;
  const CUgraphNode* dependencies;
  size_t count;
};

/// Adds the node that `read(driver, graph, action)` describes.
template <class Read>
CUresult add_node(CUgraphNode* out, const NodePosition& where, Read read) {
  return with_graph(where.graph, [&](Call& driver, Graph& graph) {
    std::vector<NodeNumber> dependencies;
    if (out == nullptr || !find_nodes(graph, where.dependencies, where.count, &dependencies))
      return CUDA_ERROR_INVALID_VALUE;
    Action action;
    const CUresult result = read(driver, graph, &action);
    if (result != CUDA_SUCCESS) return result;
    *out = handle<CUgraphNode>(driver->graphs.add(graph, std::move(action), std::move(dependencies)).number);
    return CUDA_SUCCESS;
  });
}

/// Answers what `tell` makes of the node's action, which has to be of type `Wanted`.
template <class Wanted, class Value, class Tell>
CUresult get_action(CUgraphNode named, Value* out, Tell tell) {
  return with_node(named, [&](Call&, const GraphNode& node) {
    const auto* const action = std::get_if<Wanted>(&node.action);
    if (out == nullptr || action == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = tell(*action);
    return CUDA_SUCCESS;
  });
}

inline constexpr size_t kEdgeSize = 8;  ///< of CUgraphEdgeData, which old headers lack
/// Success if the edges have no data but zeros: others need kernels.
CUresult check_edges(const void* data, size_t count);

/// Copies up to `*count` of the handles out, and nullptr after the last; then sets `*count` to how many there
/// were, or there are if `out` is nullptr.
template <class Handle>
void tell(const std::vector<Handle>& handles, Handle* out, size_t* count) {
  for (size_t i = 0; out != nullptr && i < *count; ++i) out[i] = i < handles.size() ? handles[i] : nullptr;
  if (out == nullptr || *count > handles.size()) *count = handles.size();
}

}  // namespace gpumem::sim
