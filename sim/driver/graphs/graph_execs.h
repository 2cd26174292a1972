#pragma once
#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "sim/driver/graphs/graphs.h"
#include "sim/driver/streams.h"

namespace gpumem::sim {

class Call;

/// A graph that can be launched. It keeps a copy of its own: what happens to the graph afterwards does not
/// change it.
struct GraphExec {
  std::uint64_t number = 0;  ///< the handle
  std::uint64_t flags = 0;   ///< CUgraphInstantiate_flags
  std::unique_ptr<Graph> graph;
  Ticket last;  ///< of the latest launch
};

/// The node of the executable graph, or of its child graphs, that was copied from `original`; nullptr: none.
GraphNode* find_copy(Graph& graph, NodeNumber original);

/// The executable graphs of one process. Handles are numbers that are never given out again.
/// Threads: the caller holds the driver's lock.
class GraphExecs {
 public:
  /// nullptr if the graph, or one of its children, has a cycle; or if it has memory, and an executable graph.
  GraphExec* create(const Graph& graph, std::uint64_t flags);
  GraphExec* find(CUgraphExec handle);
  /// Launches that are not done yet still are.
  void destroy(GraphExec& exec) { execs_.erase(exec.number); }

 private:
  bool has_any_of(const Graph& graph) const;

  std::map<std::uint64_t, GraphExec> execs_;
  std::uint64_t last_ = 0xc0'0000'0000;  // looks like no host pointer and no small number
};

/// Puts the work of every enabled node into the stream, one after the other in an order that their
/// dependencies allow, and after the latest launch.
/// Errors  CUDA_ERROR_INVALID_HANDLE: an event of a node is gone; CUDA_ERROR_INVALID_VALUE: memory would be
/// allocated that is not freed, or freed that is not allocated; CUDA_ERROR_OUT_OF_MEMORY. Nothing is done
/// then.
CUresult launch(Call& driver, GraphExec& exec, const StreamRef& stream);

/// Lays bytes where the nodes of `exec` allocate. Errors  CUDA_ERROR_OUT_OF_MEMORY.
CUresult back_memory(Call& driver, const GraphExec& exec);

/// What kept an executable graph from being updated.
struct UpdateConflict {
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  NodeNumber node = 0;  ///< of the new graph; 0: none in particular
};
/// Makes the nodes of `exec` do what those of a graph of the same shape do. Nothing changes on failure.
UpdateConflict update(GraphExec& exec, Graph& graph);

}  // namespace gpumem::sim
