#pragma once
#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "sim/driver/graphs/graph_memory.h"
#include "sim/driver/graphs/user_objects.h"
#include "sim/driver/memory/transfer.h"
#include "sim/driver/stream_values.h"

namespace gpumem::sim {

struct Graph;

// The work of nodes. `context` is the one that fails if the work does.
struct CopyAction {
  Copy copy;
  std::uint64_t context = 0;
};
struct FillAction {
  Fill fill;
  std::uint64_t context = 0;
};
struct ValuesAction {
  std::vector<ValueOperation> operations;
  std::uint64_t context = 0;
};
struct HostAction {
  CUhostFn function = nullptr;
  void* data = nullptr;
};
struct ChildAction {
  std::shared_ptr<Graph> graph;  ///< belongs to the node alone
};
struct EmptyAction {};
struct RecordAction {
  std::uint64_t event = 0;
};
struct WaitAction {
  std::uint64_t event = 0;
};
struct AllocateAction {
  GraphAllocationRef allocation;
};
struct FreeAction {
  GraphAllocationRef allocation;
};
using Action = std::variant<EmptyAction, CopyAction, FillAction, ValuesAction, HostAction, ChildAction,
                            RecordAction, WaitAction, AllocateAction, FreeAction>;

using NodeNumber = std::uint64_t;

struct GraphNode {
  NodeNumber number = 0;  ///< the handle
  Graph* graph = nullptr;
  Action action;
  std::vector<NodeNumber> dependencies;  ///< without duplicates, in the order they were added
  NodeNumber original = 0;               ///< in a copy of a graph: the node it was copied from
  bool is_enabled = true;                ///< only of executable graphs
};
CUgraphNodeType type_of(const Action& action);

/// Nodes with the order in which they have to be done. Not copied: see Graphs::copy.
struct Graph {
  std::uint64_t number = 0;  ///< the handle; 0: no program knows it
  std::uint64_t original = 0;
  bool is_child = false;      ///< belongs to a node
  bool is_capturing = false;  ///< a capture adds nodes to it
  std::map<NodeNumber, GraphNode> nodes;
  UserReferenceMap objects{};  ///< what lives as long as the graph and its copies

  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
};

/// The nodes of `graph`, each after those it depends on; nothing if there is a cycle.
std::optional<std::vector<GraphNode*>> in_order(Graph& graph);
/// Whether nodes of the graph, or of its children, allocate or free memory. Such a graph has no copies but
/// that of its one executable graph, and neither nodes nor edges leave it.
bool has_memory(const Graph& graph);
/// `roots` and all that they depend on, directly or not.
std::set<NodeNumber> with_ancestors(const Graph& graph, const std::vector<NodeNumber>& roots);

/// The graphs of one process. Handles are numbers that are never given out again.
/// Threads: the caller holds the driver's lock.
class Graphs {
 public:
  Graph& create();
  /// nullptr if there is none.
  Graph* find(CUgraph handle);
  GraphNode* find(CUgraphNode handle);
  /// Ends the graph with its nodes, and with what belongs to them.
  void destroy(Graph& graph);

  /// Adds a node that depends on these nodes of the graph.
  GraphNode& add(Graph& graph, Action action, std::vector<NodeNumber> dependencies);
  void remove(GraphNode& node);
  /// Gives the node's child graph a handle, which is gone with the node.
  void adopt(Graph& child);

  /// A copy with new nodes that remember their originals; programs do not know it.
  static std::unique_ptr<Graph> copy(const Graph& graph);
  /// Copies `graph` and registers the copy as a graph of the program.
  Graph& clone(const Graph& graph);

 private:
  void enlist(Graph& graph);
  void forget(Graph& graph);

  std::map<std::uint64_t, std::unique_ptr<Graph>> owned_;
  std::map<std::uint64_t, Graph*> graphs_;  ///< children too
  std::map<NodeNumber, GraphNode*> nodes_;
  std::uint64_t last_ = 0xa0'0000'0000;  // looks like no host pointer and no small number
};

}  // namespace gpumem::sim
