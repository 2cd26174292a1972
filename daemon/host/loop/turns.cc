#include "daemon/host/loop/turns.h"

#include <utility>

namespace gpumem::host {

core::Duration Turns::quantum_of(const Flow& flow) {
  const bool is_for_all = flow.kind == Flow::Kind::kBroker || flow.kind == Flow::Kind::kConnections;
  return is_for_all ? kQuantaForAll * kQuantum : kQuantum;
}

void Turns::add(const Flow& flow, Work work) {
  auto [known, is_new] = by_flow_.try_emplace(flow);
  if (is_new) known->second = ring_.insert(ring_.end(), Queue{.flow = flow});
  known->second->works.push_back(std::move(work));
  ++pieces_;
}

bool Turns::run_turn() {
  while (pieces_ != 0) {
    Queue& queue = ring_.front();
    queue.credit += quantum_of(queue.flow);
    const bool has_turn = !queue.works.empty() && queue.credit > core::Duration::zero();
    if (has_turn) run(queue);
    ring_.splice(ring_.end(), ring_, ring_.begin());
    const bool owes = queue.credit < core::Duration::zero();
    if (queue.works.empty() && !owes) {
      by_flow_.erase(queue.flow);
      ring_.pop_back();
    }
    if (has_turn) return true;
  }
  return false;
}

void Turns::run(Queue& queue) {
  core::TimePoint before = clock_();
  do {
    const Work work = std::move(queue.works.front());
    queue.works.pop_front();
    --pieces_;
    work();
    const core::TimePoint after = clock_();
    queue.credit -= after - before;
    before = after;
  } while (!queue.works.empty() && queue.credit > core::Duration::zero());
}

}  // namespace gpumem::host
