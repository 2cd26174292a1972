#include "sim/driver/graphs/graphs.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "sim/driver/driver.h"

namespace gpumem::sim {
namespace {

/// Nodes of all graphs, those that no program knows too. Threads: the driver's lock is held.
NodeNumber next_node() {
  static NodeNumber last = 0xb0'0000'0000;  // looks like no host pointer and no small number
  return last += 16;
}

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

}  // namespace

CUgraphNodeType type_of(const Action& action) {
  return std::visit(Overloaded{
                        [](const EmptyAction&) { return CU_GRAPH_NODE_TYPE_EMPTY; },
                        [](const CopyAction&) { return CU_GRAPH_NODE_TYPE_MEMCPY; },
                        [](const FillAction&) { return CU_GRAPH_NODE_TYPE_MEMSET; },
                        [](const ValuesAction&) { return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP; },
                        [](const HostAction&) { return CU_GRAPH_NODE_TYPE_HOST; },
                        [](const ChildAction&) { return CU_GRAPH_NODE_TYPE_GRAPH; },
                        [](const RecordAction&) { return CU_GRAPH_NODE_TYPE_EVENT_RECORD; },
                        [](const WaitAction&) { return CU_GRAPH_NODE_TYPE_WAIT_EVENT; },
                        [](const AllocateAction&) { return CU_GRAPH_NODE_TYPE_MEM_ALLOC; },
                        [](const FreeAction&) { return CU_GRAPH_NODE_TYPE_MEM_FREE; },
                    },
                    action);
}

std::optional<std::vector<GraphNode*>> in_order(Graph& graph) {
  std::map<NodeNumber, std::vector<GraphNode*>> dependents;
  std::map<NodeNumber, std::size_t> missing;
  std::deque<GraphNode*> ready;
  for (auto& [number, node] : graph.nodes) {
    missing[number] = node.dependencies.size();
    for (const NodeNumber before : node.dependencies) dependents[before].push_back(&node);
    if (node.dependencies.empty()) ready.push_back(&node);
  }
  std::vector<GraphNode*> order;
  for (; !ready.empty(); ready.pop_front()) {
    order.push_back(ready.front());
    for (GraphNode* const after : dependents[ready.front()->number]) {
      if (--missing[after->number] == 0) ready.push_back(after);
    }
  }
  if (order.size() < graph.nodes.size()) return std::nullopt;
  return order;
}

bool has_memory(const Graph& graph) {
  return std::ranges::any_of(graph.nodes, [](const auto& entry) {
    const Action& action = entry.second.action;
    const auto* const child = std::get_if<ChildAction>(&action);
    return std::holds_alternative<AllocateAction>(action) || std::holds_alternative<FreeAction>(action) ||
           (child != nullptr && has_memory(*child->graph));
  });
}

std::set<NodeNumber> with_ancestors(const Graph& graph, const std::vector<NodeNumber>& roots) {
  std::set<NodeNumber> found;
  std::vector<NodeNumber> open = roots;
  while (!open.empty()) {
    const NodeNumber number = open.back();
    open.pop_back();
    const auto node = graph.nodes.find(number);
    if (node == graph.nodes.end() || !found.insert(number).second) continue;
    open.insert(open.end(), node->second.dependencies.begin(), node->second.dependencies.end());
  }
  return found;
}

Graph& Graphs::create() {
  auto made = std::make_unique<Graph>();
  made->number = last_ += 16;
  Graph& graph = *made;
  graphs_[graph.number] = &graph;
  owned_[graph.number] = std::move(made);
  return graph;
}

Graph* Graphs::find(CUgraph named) {
  const auto found = graphs_.find(number(named));
  return found == graphs_.end() ? nullptr : found->second;
}

GraphNode* Graphs::find(CUgraphNode named) {
  const auto found = nodes_.find(number(named));
  return found == nodes_.end() ? nullptr : found->second;
}

void Graphs::destroy(Graph& graph) {
  forget(graph);
  for (const auto& [number, node] : graph.nodes) {
    const auto* const free = std::get_if<FreeAction>(&node.action);
    if (free != nullptr) free->allocation->freeing.erase(graph.number);
  }
  owned_.erase(graph.number);
}

GraphNode& Graphs::add(Graph& graph, Action action, std::vector<NodeNumber> dependencies) {
  const NodeNumber number = next_node();
  GraphNode& node = graph.nodes[number];
  node.number = number;
  node.graph = &graph;
  node.action = std::move(action);
  node.dependencies = std::move(dependencies);
  nodes_[number] = &node;
  if (const auto* const child = std::get_if<ChildAction>(&node.action)) adopt(*child->graph);
  return node;
}

void Graphs::adopt(Graph& child) {
  child.number = last_ += 16;
  child.is_child = true;
  enlist(child);
}

void Graphs::remove(GraphNode& node) {
  Graph& graph = *node.graph;
  const NodeNumber number = node.number;
  if (const auto* const child = std::get_if<ChildAction>(&node.action)) forget(*child->graph);
  for (auto& [other, after] : graph.nodes) std::erase(after.dependencies, number);
  nodes_.erase(number);
  graph.nodes.erase(number);
}

std::unique_ptr<Graph> Graphs::copy(const Graph& graph) {
  auto made = std::make_unique<Graph>();
  made->original = graph.number;
  made->objects = graph.objects;
  std::map<NodeNumber, NodeNumber> copies;
  for (const auto& [number, node] : graph.nodes) copies[number] = next_node();
  for (const auto& [number, node] : graph.nodes) {
    GraphNode& copied = made->nodes[copies[number]];
    copied = node;
    copied.number = copies[number];
    copied.graph = made.get();
    copied.original = number;
    for (NodeNumber& before : copied.dependencies) before = copies[before];
    auto* const child = std::get_if<ChildAction>(&copied.action);
    if (child != nullptr) child->graph = copy(*child->graph);
  }
  return made;
}

Graph& Graphs::clone(const Graph& graph) {
  auto made = copy(graph);
  made->number = last_ += 16;
  enlist(*made);
  Graph& cloned = *made;
  owned_[cloned.number] = std::move(made);
  return cloned;
}

/// Makes the graph and its nodes known, and the graphs that its nodes have.
void Graphs::enlist(Graph& graph) {
  graphs_[graph.number] = &graph;
  for (auto& [number, node] : graph.nodes) {
    nodes_[number] = &node;
    if (const auto* const child = std::get_if<ChildAction>(&node.action)) adopt(*child->graph);
  }
}

void Graphs::forget(Graph& graph) {
  for (auto& [number, node] : graph.nodes) {
    nodes_.erase(number);
    if (const auto* const child = std::get_if<ChildAction>(&node.action)) forget(*child->graph);
  }
  graphs_.erase(graph.number);
}

}  // namespace gpumem::sim
