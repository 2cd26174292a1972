#include "daemon/host/loop/turns.h"

#include <algorithm>
#include <utility>

namespace gpumem::host {

core::Duration Turns::quantum_of(const Flow& flow) {
  const bool is_for_all = flow.kind == Flow::Kind::kBroker || flow.kind == Flow::Kind::kConnections;
  return is_for_all ? kQuantaForAll * kQuantum : kQuantum;
}

void Turns::add(const Flow& flow, Work work) {
  auto [known, is_new] = by_flow_.try_emplace(flow);
  if (is_new) known->second = new_.insert(new_.end(), Queue{.flow = flow});
  known->second->works.push_back(std::move(work));
  ++pieces_;
}

bool Turns::run_stretch() {
  if (pieces_ == 0) return false;
  Ring& list = next();
  Queue& queue = list.front();
  run(queue);
  if (queue.works.empty()) queue.credit = std::min(queue.credit, core::Duration::zero());
  queue.in_turn = !queue.works.empty() && queue.credit > core::Duration::zero();
  if (!queue.in_turn) ring_.splice(ring_.end(), list, list.begin());
  return true;
}

Turns::Ring& Turns::next() {
  for (;;) {
    Ring& list = new_.empty() ? ring_ : new_;
    Queue& queue = list.front();
    if (queue.in_turn) return list;
    queue.credit += quantum_of(queue.flow);
    const bool owes = queue.credit <= core::Duration::zero();
    if (!owes && !queue.works.empty()) return list;
    if (owes) {
      ring_.splice(ring_.end(), list, list.begin());
    } else {
      by_flow_.erase(queue.flow);
      list.pop_front();
    }
  }
}

void Turns::run(Queue& queue) {
  const core::TimePoint begin = clock_();
  core::TimePoint before = begin;
  do {
    const Work work = std::move(queue.works.front());
    queue.works.pop_front();
    --pieces_;
    work();
    const core::TimePoint after = clock_();
    queue.credit -= after - before;
    before = after;
  } while (!queue.works.empty() && queue.credit > core::Duration::zero() && before - begin < kStretch);
}

}  // namespace gpumem::host
