#include "daemon/core/broker.h"

// Regions whose content changes: what was written is committed, and waited for.

namespace gpumem::core {

Result<std::uint64_t> Broker::commit_region(SessionId id, RegionId region, TimePoint now) {
  const auto session = state_.live(id);
  if (!session) return session.error();
  lending_.drop_expired_regions(now);
  auto generation = lending_.commit_region(**session, region);
  if (generation) tell_generation(region, generation);
  settle(now);
  return generation;
}

void Broker::await_generation(RequestId id, SessionId session_id, GenerationTerms terms, Duration wait,
                              TimePoint now) {
  const auto answer = [&](Result<std::uint64_t> result) {
    state_.outbox.emit(AnswerGeneration{id, session_id, std::move(result)});
  };
  const auto session = state_.live(session_id);
  if (!session) return answer(session.error());
  if (state_.draining) return answer(Error{Code::kUnavailable, "the broker is stopping"});
  lending_.drop_expired_regions(now);
  const auto region = lending_.followable(**session, terms.region);
  if (!region) {
    answer(region.error());
  } else if (wait == Duration::zero() || (*region)->generation > terms.after) {
    answer((*region)->generation);
  } else {
    const TimePoint deadline = now + std::min(wait, TimePoint::max() - now);
    auto waits = generation_waits_.add(id, {session_id, (*session)->tenant, terms, now, deadline});
    if (!waits) answer(waits.error());
  }
  settle(now);
}

// Whoever waits for a later one than that goes on waiting.
void Broker::tell_generation(RegionId region, const Result<std::uint64_t>& generation) {
  for (const RequestId id : generation_waits_.of(region)) {
    if (generation && *generation <= generation_waits_.find(id)->terms.after) continue;
    const SessionId session = generation_waits_.take(id)->session;
    state_.outbox.emit(AnswerGeneration{id, session, generation});
  }
}

void Broker::refuse_ended_generation_waits() {
  for (const RegionId region : lending_.take_ended_regions()) {
    tell_generation(region,
                    Error{Code::kNotFound, "the region of version " + std::to_string(region.value) +
                                               " has ended: nobody follows its generations any more"});
  }
}

void Broker::refuse_expired_generation_waits(TimePoint now) {
  for (const RequestId id : generation_waits_.expired(now)) {
    const auto wait = generation_waits_.take(id);
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - wait->since);
    state_.outbox.emit(
        AnswerGeneration{id, wait->session,
                         Error{Code::kDeadlineExceeded,
                               "waited " + std::to_string(waited.count()) + " ms for a generation after " +
                                   std::to_string(wait->terms.after) + " of the region of version " +
                                   std::to_string(wait->terms.region.value) + ": nobody has committed one"}});
  }
}

}  // namespace gpumem::core
