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
  if (is_new) known->second = ring_.insert(ring_.end(), Queue{.flow = flow, .credit = quantum_of(flow)});
  Queue& queue = *known->second;
  if (queue.works.empty() && !queue.in_turn && queue.credit > core::Duration::zero())
    before_.splice(before_.end(), ring_, known->second);
  queue.works.push_back(std::move(work));
  ++pieces_;
}

bool Turns::run_stretch() {
  if (pieces_ == 0) return false;
  Ring& list = next();
  Queue& queue = list.front();
  queue.in_turn = true;
  run(queue);
  const bool goes_on = !queue.works.empty() && queue.credit > core::Duration::zero();
  const bool is_before = &list == &before_;
  queue.in_turn = goes_on && !is_before;
  if (is_before && goes_on)
    before_.splice(before_.end(), before_, before_.begin());
  else if (!goes_on)
    ring_.splice(ring_.end(), list, list.begin());
  return true;
}

Turns::Ring& Turns::next() {
  if (!before_.empty()) return before_;
  for (;;) {
    Queue& queue = ring_.front();
    if (queue.in_turn) return ring_;
    queue.credit = std::min(queue.credit + quantum_of(queue.flow), quantum_of(queue.flow));
    const bool owes = queue.credit <= core::Duration::zero();
    if (!owes && !queue.works.empty()) return ring_;
    if (owes) {
      ring_.splice(ring_.end(), ring_, ring_.begin());
    } else {
      by_flow_.erase(queue.flow);
      ring_.pop_front();
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
