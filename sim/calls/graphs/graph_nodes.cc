// The nodes of graphs: added, described, changed.
#include <cuda.h>

#include <utility>

#include "calls.h"
#include "sim/calls/graphs/find_graph.h"
#include "sim/calls/graphs/node_actions.h"
#include "sim/driver/memory/transfer.h"

namespace gpumem::sim {
namespace {

/// Makes the node do what `read(driver, node, action)` describes; its type stays.
template <class Read>
CUresult set(CUgraphNode named, Read read) {
  return with_node(named, [&](Call& driver, GraphNode& node) {
    Action action;
    const CUresult result = read(driver, node, &action);
    if (result != CUDA_SUCCESS) return result;
    if (action.index() != node.action.index()) return CUDA_ERROR_INVALID_VALUE;
    node.action = std::move(action);
    return CUDA_SUCCESS;
  });
}

/// The context that the node's work is done in.
template <class Wanted>
CUcontext context_of(const GraphNode& node) {
  const auto* const action = std::get_if<Wanted>(&node.action);
  return action == nullptr ? nullptr : handle<CUcontext>(action->context);
}

}  // namespace

CUresult api::cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count) {
  return add_node(out, {graph, dependencies, count}, [](Call&, Graph&, Action*) { return CUDA_SUCCESS; });
}

CUresult api::cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                   size_t count, const CUDA_MEMCPY3D* given, CUcontext context) {
  return add_node(out, {graph, dependencies, count}, [&](Call& driver, Graph&, Action* action) {
    return read_copy(driver, given, context, action);
  });
}
CUresult api::cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* out) {
  return get_action<CopyAction>(node, out,
                                [](const CopyAction& action) { return write_parameters(action.copy); });
}
CUresult api::cuGraphMemcpyNodeSetParams(CUgraphNode named, const CUDA_MEMCPY3D* given) {
  return set(named, [&](Call& driver, const GraphNode& node, Action* action) {
    return read_copy(driver, given, context_of<CopyAction>(node), action);
  });
}

CUresult api::cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                   size_t count, const CUDA_MEMSET_NODE_PARAMS* given, CUcontext context) {
  return add_node(out, {graph, dependencies, count}, [&](Call& driver, Graph&, Action* action) {
    return read_fill(driver, given, context, action);
  });
}
CUresult api::cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* out) {
  return get_action<FillAction>(node, out, [](const FillAction& action) { return write_fill(action.fill); });
}
CUresult api::cuGraphMemsetNodeSetParams(CUgraphNode named, const CUDA_MEMSET_NODE_PARAMS* given) {
  return set(named, [&](Call& driver, const GraphNode& node, Action* action) {
    return read_fill(driver, given, context_of<FillAction>(node), action);
  });
}

CUresult api::cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, const CUDA_HOST_NODE_PARAMS* given) {
  return add_node(out, {graph, dependencies, count},
                  [&](Call&, Graph&, Action* action) { return read_host(given, action); });
}
CUresult api::cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* out) {
  return get_action<HostAction>(node, out, [](const HostAction& action) {
    return CUDA_HOST_NODE_PARAMS{action.function, action.data};
  });
}
CUresult api::cuGraphHostNodeSetParams(CUgraphNode named, const CUDA_HOST_NODE_PARAMS* given) {
  return set(named, [&](Call&, const GraphNode&, Action* action) { return read_host(given, action); });
}

CUresult api::cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                        size_t count, CUevent event) {
  return add_node(out, {graph, dependencies, count},
                  [&](Call& driver, Graph&, Action* action) { return read_record(driver, event, action); });
}
CUresult api::cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* out) {
  return get_action<RecordAction>(node, out,
                                  [](const RecordAction& action) { return handle<CUevent>(action.event); });
}
CUresult api::cuGraphEventRecordNodeSetEvent(CUgraphNode named, CUevent event) {
  return set(named, [&](Call& driver, const GraphNode&, Action* action) {
    return read_record(driver, event, action);
  });
}

CUresult api::cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                      size_t count, CUevent event) {
  return add_node(out, {graph, dependencies, count},
                  [&](Call& driver, Graph&, Action* action) { return read_wait(driver, event, action); });
}
CUresult api::cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* out) {
  return get_action<WaitAction>(node, out,
                                [](const WaitAction& action) { return handle<CUevent>(action.event); });
}
CUresult api::cuGraphEventWaitNodeSetEvent(CUgraphNode named, CUevent event) {
  return set(named, [&](Call& driver, const GraphNode&, Action* action) {
    return read_wait(driver, event, action);
  });
}

CUresult api::cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                       size_t count, CUgraph child) {
  return add_node(out, {graph, dependencies, count},
                  [&](Call& driver, Graph&, Action* action) { return read_child(driver, child, action); });
}
CUresult api::cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* out) {
  return get_action<ChildAction>(
      node, out, [](const ChildAction& action) { return handle<CUgraph>(action.graph->number); });
}

#if CUDA_VERSION >= 12020
CUresult api::cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                             CUgraphNodeParams* given) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_node(out, {graph, dependencies, count}, [&](Call& driver, Graph& graph_of, Action* action) {
    return read_action(driver, &graph_of, *given, action);
  });
}
CUresult api::cuGraphNodeSetParams(CUgraphNode named, CUgraphNodeParams* given) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool is_child = given->type == CU_GRAPH_NODE_TYPE_GRAPH;
  if (is_child) return CUDA_ERROR_NOT_SUPPORTED;
  return set(named, [&](Call& driver, const GraphNode&, Action* action) {
    return read_action(driver, nullptr, *given, action);
  });
}
#endif
#if CUDA_VERSION >= 12030
CUresult api::cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* given) {
  const CUresult plain = check_edges(edges, count);
  return plain == CUDA_SUCCESS ? api::cuGraphAddNode(out, graph, dependencies, count, given) : plain;
}
#endif

}  // namespace gpumem::sim
