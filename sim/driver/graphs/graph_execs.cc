#include "sim/driver/graphs/graph_execs.h"

#include <algorithm>

#include "sim/control/control.h"
#include "sim/driver/driver.h"
#include "sim/exports/gate.h"

namespace gpumem::sim {
namespace {

/// Whether the graph and all its children can be brought into an order.
bool has_order(Graph& graph) {
  if (!in_order(graph)) return false;
  return std::ranges::all_of(graph.nodes, [](auto& entry) {
    const auto* const child = std::get_if<ChildAction>(&entry.second.action);
    return child == nullptr || has_order(*child->graph);
  });
}

bool is_host(const Place& place) { return place.side != Side::kDevice; }

/// What a call that does the same costs for its bytes.
std::chrono::nanoseconds cost_of(const Copy& copy) {
  const char* call = "cuMemcpyDtoDAsync_v2";
  if (is_host(copy.from)) call = "cuMemcpyHtoDAsync_v2";
  if (is_host(copy.to)) call = "cuMemcpyDtoHAsync_v2";
  return Gate::cost_of(call, copy.shape.width * copy.shape.height * copy.shape.depth);
}
std::chrono::nanoseconds cost_of(const Fill& fill) {
  return Gate::cost_of("cuMemsetD8Async", fill.shape.width * fill.shape.height);
}

void fail_unless(CUresult result, std::uint64_t context) {
  if (result != CUDA_SUCCESS) Driver::get().fail(context, result);
}

/// Puts nodes into a stream.
class Launcher {
 public:
  Launcher(Call& driver, const StreamRef& stream) : driver_(driver), stream_(stream) {}

  void put(Graph& graph) {
    const auto order = in_order(graph);
    for (const GraphNode* const node : *order) {
      if (node->is_enabled) std::visit(*this, node->action);
    }
  }

  void operator()(const EmptyAction&) {}
  void operator()(const CopyAction& action) { put(action.copy, action.context); }
  void operator()(const FillAction& action) { put(action.fill, action.context); }
  void operator()(const ChildAction& action) { put(*action.graph); }
  void operator()(const ValuesAction& action) {
    driver_->streams.submit(stream_, [action] { fail_unless(perform(action.operations), action.context); });
  }
  void operator()(const HostAction& action) {
    driver_->streams.submit(stream_, [action] { action.function(action.data); });
  }
  void operator()(const RecordAction& action) {
    driver_->events.find(action.event)->record(driver_->streams, stream_);
  }
  // LaunchMemory has settled allocations and frees before the launch.
  void operator()(const AllocateAction&) {}
  void operator()(const FreeAction&) {}
  void operator()(const WaitAction& action) {
    driver_->events.find(action.event)->hold_back(driver_->streams, stream_);
  }

 private:
  template <class What>
  void put(const What& what, std::uint64_t context) {
    driver_->streams.submit(stream_, [what, context, cost = cost_of(what)] {
      spend(cost);
      fail_unless(perform(what), context);
    });
  }

  Call& driver_;
  const StreamRef& stream_;
};

bool has_event(Call& driver, std::uint64_t event) {
  const Event* const found = driver->events.find(event);
  return found != nullptr && !found->captured();
}

/// Whether all events that the nodes name can be recorded and waited for.
bool has_events(Call& driver, const Graph& graph) {
  return std::ranges::all_of(graph.nodes, [&](const auto& entry) {
    const Action& action = entry.second.action;
    if (const auto* const record = std::get_if<RecordAction>(&action))
      return driver->events.find(record->event) != nullptr;
    if (const auto* const wait = std::get_if<WaitAction>(&action)) return has_event(driver, wait->event);
    const auto* const child = std::get_if<ChildAction>(&action);
    return child == nullptr || has_events(driver, *child->graph);
  });
}

/// The allocations and frees of a launch, as if its nodes were done in order. Changes nothing before
/// settle().
class LaunchMemory {
 public:
  /// `frees_first`  whether the launch begins by freeing what a launch before has left.
  LaunchMemory(Graph& graph, bool frees_first) : frees_first_(frees_first) { visit(graph); }

  /// Whether all that is allocated was free, and all that is freed allocated.
  bool is_valid() const { return is_valid_; }
  CUresult back(GraphMemory& memory) const {
    for (const GraphAllocationRef& allocation : made_) {
      if (const CUresult result = memory.back(*allocation); result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  }
  void settle(const Ticket& last) const {
    for (const auto& [allocation, is_live] : lives_) {
      allocation->is_live = is_live;
      allocation->last = last;
    }
  }

 private:
  void visit(Graph& graph) {
    const auto order = in_order(graph);
    for (const GraphNode* const node : *order) {
      if (const auto* const child = std::get_if<ChildAction>(&node->action)) visit(*child->graph);
      if (const auto* const made = std::get_if<AllocateAction>(&node->action)) {
        made_.push_back(made->allocation);
        change(made->allocation, !frees_first_ && made->allocation->is_live, true);
      }
      if (const auto* const freed = std::get_if<FreeAction>(&node->action))
        change(freed->allocation, freed->allocation->is_live, false);
    }
  }
  void change(const GraphAllocationRef& allocation, bool was_live, bool is_live) {
    bool& now = lives_.try_emplace(allocation, was_live).first->second;
    is_valid_ = is_valid_ && now != is_live;
    now = is_live;
  }

  const bool frees_first_;
  bool is_valid_ = true;
  std::vector<GraphAllocationRef> made_;
  std::map<GraphAllocationRef, bool> lives_;
};

/// Which nodes of an executable graph stand for which of another one; a conflict where there is none.
UpdateConflict pair(Graph& old, Graph& graph, std::vector<std::pair<GraphNode*, GraphNode*>>& pairs) {
  if (old.nodes.size() != graph.nodes.size()) return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, 0};
  std::map<NodeNumber, NodeNumber> partner;  // by number in `graph`
  for (auto left = old.nodes.begin(), right = graph.nodes.begin(); left != old.nodes.end(); ++left, ++right) {
    GraphNode &was = left->second, &is = right->second;
    partner[is.number] = was.number;
    if (was.action.index() != is.action.index())
      return {CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, is.number};
    if (std::holds_alternative<AllocateAction>(is.action) || std::holds_alternative<FreeAction>(is.action))
      return {CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, is.number};
    pairs.emplace_back(&was, &is);
    const auto* const was_child = std::get_if<ChildAction>(&was.action);
    const auto* const is_child = std::get_if<ChildAction>(&is.action);
    if (was_child == nullptr) continue;
    const UpdateConflict inside = pair(*was_child->graph, *is_child->graph, pairs);
    if (inside.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return {inside.result, is.number};
  }
  for (auto left = old.nodes.begin(), right = graph.nodes.begin(); left != old.nodes.end(); ++left, ++right) {
    std::vector<NodeNumber> dependencies;
    for (const NodeNumber before : right->second.dependencies) dependencies.push_back(partner[before]);
    if (!std::ranges::is_permutation(dependencies, left->second.dependencies))
      return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, right->first};
  }
  return {};
}

}  // namespace

GraphNode* find_copy(Graph& graph, NodeNumber original) {
  for (auto& [number, node] : graph.nodes) {
    if (node.original == original) return &node;
    const auto* const child = std::get_if<ChildAction>(&node.action);
    GraphNode* const inside = child == nullptr ? nullptr : find_copy(*child->graph, original);
    if (inside != nullptr) return inside;
  }
  return nullptr;
}

bool GraphExecs::has_any_of(const Graph& graph) const {
  return std::ranges::any_of(execs_,
                             [&](const auto& entry) { return entry.second.graph->original == graph.number; });
}

GraphExec* GraphExecs::create(const Graph& graph, std::uint64_t flags) {
  if (has_memory(graph) && has_any_of(graph)) return nullptr;
  auto copied = Graphs::copy(graph);
  if (!has_order(*copied)) return nullptr;
  const std::uint64_t number = last_ += 16;
  GraphExec& exec = execs_[number];
  exec.number = number;
  exec.flags = flags;
  exec.graph = std::move(copied);
  return &exec;
}

GraphExec* GraphExecs::find(CUgraphExec named) {
  const auto found = execs_.find(number(named));
  return found == execs_.end() ? nullptr : &found->second;
}

CUresult launch(Call& driver, GraphExec& exec, const StreamRef& stream) {
  if (!has_events(driver, *exec.graph)) return CUDA_ERROR_INVALID_HANDLE;
  const LaunchMemory memory(*exec.graph, (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0);
  if (!memory.is_valid()) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = memory.back(driver->graph_memory); result != CUDA_SUCCESS) return result;
  driver->streams.submit_short(stream, [] {}, {exec.last});
  Launcher(driver, stream).put(*exec.graph);
  exec.last = driver->streams.submit_short(stream, [] {});
  memory.settle(exec.last);
  return CUDA_SUCCESS;
}

CUresult back_memory(Call& driver, const GraphExec& exec) {
  return LaunchMemory(*exec.graph, false).back(driver->graph_memory);
}

UpdateConflict update(GraphExec& exec, Graph& graph) {
  std::vector<std::pair<GraphNode*, GraphNode*>> pairs;
  const UpdateConflict conflict = pair(*exec.graph, graph, pairs);
  if (conflict.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return conflict;
  for (const auto& [was, is] : pairs) {
    if (!std::holds_alternative<ChildAction>(is->action)) was->action = is->action;
  }
  return {};
}

}  // namespace gpumem::sim
