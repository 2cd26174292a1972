// Graphs: made, copied, ended; which nodes they have.
#include <cuda.h>

#include <algorithm>

#include "calls.h"
#include "sim/calls/graphs/find_graph.h"

namespace gpumem::sim {

bool find_nodes(const Graph& graph, const CUgraphNode* given, size_t count, std::vector<NodeNumber>* out) {
  if (given == nullptr && count > 0) return false;
  for (size_t i = 0; i < count; ++i) {
    const NodeNumber node = number(given[i]);
    if (!graph.nodes.contains(node) || std::ranges::find(*out, node) != out->end()) return false;
    out->push_back(node);
  }
  return true;
}

CUresult api::cuGraphCreate(CUgraph* out, unsigned int flags) {
  Call driver;
  if (!driver) return driver.error();
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *out = handle<CUgraph>(driver->graphs.create().number);
  return CUDA_SUCCESS;
}

CUresult api::cuGraphClone(CUgraph* out, CUgraph named) {
  return with_graph(named, [&](Call& driver, const Graph& graph) {
    if (out == nullptr || has_memory(graph)) return CUDA_ERROR_INVALID_VALUE;
    *out = handle<CUgraph>(driver->graphs.clone(graph).number);
    return CUDA_SUCCESS;
  });
}

CUresult api::cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode node, CUgraph named) {
  return with_graph(named, [&](Call&, Graph& graph) {
    GraphNode* const found = find_copy(graph, number(node));
    if (out == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = handle<CUgraphNode>(found->number);
    return CUDA_SUCCESS;
  });
}

/// The graphs of nodes and of captures are not the program's to destroy.
CUresult api::cuGraphDestroy(CUgraph named) {
  return with_graph(named, [](Call& driver, Graph& graph) {
    if (graph.is_child || graph.is_capturing) return CUDA_ERROR_INVALID_VALUE;
    driver->graphs.destroy(graph);
    driver->graph_memory.collect();
    return CUDA_SUCCESS;
  });
}

CUresult api::cuGraphDestroyNode(CUgraphNode named) {
  return with_node(named, [](Call& driver, GraphNode& node) {
    if (node.graph->is_capturing || has_memory(*node.graph)) return CUDA_ERROR_INVALID_VALUE;
    driver->graphs.remove(node);
    return CUDA_SUCCESS;
  });
}

CUresult api::cuGraphNodeGetType(CUgraphNode named, CUgraphNodeType* type) {
  return with_node(named, [&](Call&, const GraphNode& node) {
    if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *type = type_of(node.action);
    return CUDA_SUCCESS;
  });
}

CUresult api::cuGraphGetNodes(CUgraph named, CUgraphNode* nodes, size_t* count) {
  return with_graph(named, [&](Call&, const Graph& graph) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> handles;
    for (const auto& [number, node] : graph.nodes) handles.push_back(handle<CUgraphNode>(number));
    tell(handles, nodes, count);
    return CUDA_SUCCESS;
  });
}

CUresult api::cuGraphGetRootNodes(CUgraph named, CUgraphNode* nodes, size_t* count) {
  return with_graph(named, [&](Call&, const Graph& graph) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> handles;
    for (const auto& [number, node] : graph.nodes) {
      if (node.dependencies.empty()) handles.push_back(handle<CUgraphNode>(number));
    }
    tell(handles, nodes, count);
    return CUDA_SUCCESS;
  });
}

}  // namespace gpumem::sim
