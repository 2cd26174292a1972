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
    before_.push_back(&queue);
  queue.works.push_back(std::move(work));
  ++pieces_;
}

bool Turns::run_stretch() {
  if (pieces_ == 0) return false;
  if (!before_.empty()) {
    Queue& queue = *before_.front();
    before_.pop_front();
    if (run(queue)) before_.push_back(&queue);
    queue.in_turn = false;
    return true;
  }
  if (!run(next_of_round())) ring_.splice(ring_.end(), ring_, ring_.begin());
  return true;
}

Turns::Queue& Turns::next_of_round() {
  for (;;) {
    Queue& queue = ring_.front();
    if (queue.in_turn) return queue;
    queue.credit = std::min(queue.credit + quantum_of(queue.flow), quantum_of(queue.flow));
    const bool owes = queue.credit <= core::Duration::zero();
    if (!owes && !queue.works.empty()) return queue;
    if (owes) {
      ring_.splice(ring_.end(), ring_, ring_.begin());
    } else {
      by_flow_.erase(queue.flow);
      ring_.pop_front();
    }
  }
}

bool Turns::run(Queue& queue) {
  queue.in_turn = true;
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
  queue.in_turn = !queue.works.empty() && queue.credit > core::Duration::zero();
  return queue.in_turn;
}

}  // namespace gpumem::host
