// The dependencies between the nodes of a graph.
#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "calls.h"
#include "sim/calls/graphs/find_graph.h"

namespace gpumem::sim {
namespace {

using Nodes = std::vector<CUgraphNode>;

/// Pairs of nodes of one graph, as a program gives them.
struct Edges {
  const CUgraphNode* from;
  const CUgraphNode* to;
  size_t count;
};

/// Changes the dependencies of `to` for each edge by `change(dependencies, from)`, which tells whether it
/// could. All or nothing.
template <class Change>
CUresult change_edges(CUgraph named, const Edges& edges, Change change) {
  return with_graph(named, [&](Call&, Graph& graph) {
    if (edges.count > 0 && (edges.from == nullptr || edges.to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    std::map<NodeNumber, std::vector<NodeNumber>> changed;
    for (size_t i = 0; i < edges.count; ++i) {
      const NodeNumber from = number(edges.from[i]), to = number(edges.to[i]);
      if (from == to || !graph.nodes.contains(from) || !graph.nodes.contains(to))
        return CUDA_ERROR_INVALID_VALUE;
      auto& dependencies = changed.try_emplace(to, graph.nodes[to].dependencies).first->second;
      if (!change(dependencies, from)) return CUDA_ERROR_INVALID_VALUE;
    }
    for (auto& [node, dependencies] : changed) graph.nodes[node].dependencies = std::move(dependencies);
    return CUDA_SUCCESS;
  });
}

CUresult add(CUgraph graph, const Edges& edges) {
  return change_edges(graph, edges, [](std::vector<NodeNumber>& dependencies, NodeNumber from) {
    if (std::ranges::find(dependencies, from) != dependencies.end()) return false;
    dependencies.push_back(from);
    return true;
  });
}

CUresult remove(CUgraph named, const Edges& edges) {
  const CUresult kept = with_graph(named, [](Call&, const Graph& graph) {
    return has_memory(graph) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
  if (kept != CUDA_SUCCESS) return kept;
  return change_edges(named, edges, [](std::vector<NodeNumber>& dependencies, NodeNumber from) {
    return std::erase(dependencies, from) == 1;
  });
}

CUresult tell_edges(CUgraph named, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return with_graph(named, [&](Call&, const Graph& graph) {
    if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    Nodes sources, targets;
    for (const auto& [number, node] : graph.nodes) {
      for (const NodeNumber before : node.dependencies) {
        sources.push_back(handle<CUgraphNode>(before));
        targets.push_back(handle<CUgraphNode>(number));
      }
    }
    size_t again = *count;
    tell(sources, from, count);
    tell(targets, to, &again);
    return CUDA_SUCCESS;
  });
}

CUresult tell_dependencies(CUgraphNode named, CUgraphNode* nodes, size_t* count) {
  return with_node(named, [&](Call&, const GraphNode& node) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Nodes handles;
    for (const NodeNumber before : node.dependencies) handles.push_back(handle<CUgraphNode>(before));
    tell(handles, nodes, count);
    return CUDA_SUCCESS;
  });
}

CUresult tell_dependents(CUgraphNode named, CUgraphNode* nodes, size_t* count) {
  return with_node(named, [&](Call&, const GraphNode& node) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Nodes handles;
    for (const auto& [number, other] : node.graph->nodes) {
      const bool is_after = std::ranges::find(other.dependencies, node.number) != other.dependencies.end();
      if (is_after) handles.push_back(handle<CUgraphNode>(number));
    }
    tell(handles, nodes, count);
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult check_edges(const void* data, size_t count) {
  const auto* const bytes = static_cast<const unsigned char*>(data);
  const bool is_plain = bytes == nullptr || std::all_of(bytes, bytes + count * kEdgeSize,
                                                        [](unsigned char byte) { return byte == 0; });
  return is_plain ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult api::cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                     size_t count) {
  return add(graph, {from, to, count});
}
CUresult api::cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                        size_t count) {
  return remove(graph, {from, to, count});
}
CUresult api::cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return tell_edges(graph, from, to, count);
}
CUresult api::cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return tell_dependencies(node, nodes, count);
}
CUresult api::cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return tell_dependents(node, nodes, count);
}

#if CUDA_VERSION >= 12030
CUresult api::cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                        const CUgraphEdgeData* edges, size_t count) {
  const CUresult plain = check_edges(edges, count);
  return plain == CUDA_SUCCESS ? add(graph, {from, to, count}) : plain;
}
CUresult api::cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                           const CUgraphEdgeData* edges, size_t count) {
  const CUresult plain = check_edges(edges, count);
  return plain == CUDA_SUCCESS ? remove(graph, {from, to, count}) : plain;
}

// All edges are plain ones here.
CUresult api::cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edges,
                                 size_t* count) {
  if (edges != nullptr && (from == nullptr || count == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (edges != nullptr) std::memset(edges, 0, *count * sizeof *edges);
  return tell_edges(graph, from, to, count);
}
CUresult api::cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* edges,
                                            size_t* count) {
  if (edges != nullptr && (nodes == nullptr || count == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (edges != nullptr) std::memset(edges, 0, *count * sizeof *edges);
  return tell_dependencies(node, nodes, count);
}
CUresult api::cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* edges,
                                              size_t* count) {
  if (edges != nullptr && (nodes == nullptr || count == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (edges != nullptr) std::memset(edges, 0, *count * sizeof *edges);
  return tell_dependents(node, nodes, count);
}
#endif

}  // namespace gpumem::sim
