#include "daemon/core/last_answers.h"

#include <algorithm>

namespace gpumem::core {

void LastAnswers::note(SessionId session, std::uint64_t request, std::uint64_t value) {
  if (request == 0) return;
  put(session, {request, value, false});
  outbox_.record(Checkpoint::Answer{session, request, value});
}

void LastAnswers::restore(const Checkpoint::Answer& answer) {
  put(answer.session, {answer.request, answer.value, true});
}

void LastAnswers::put(SessionId session, const Entry& entry) {
  auto& entries = by_session_[session];
  if (entries.size() == kMostOfSession) entries.pop_front();
  entries.push_back(entry);
}

// A number may be used again by a client that has had its answer: only what is asked again is found.
std::optional<std::uint64_t> LastAnswers::find(SessionId session, std::uint64_t request) const {
  const auto of = by_session_.find(session);
  if (request == 0 || of == by_session_.end()) return std::nullopt;
  const auto found = std::ranges::find_if(
      of->second, [&](const Entry& entry) { return entry.restored && entry.request == request; });
  return found == of->second.end() ? std::nullopt : std::optional(found->value);
}

void LastAnswers::add_to(Checkpoint& checkpoint) const {
  for (const auto& [session, entries] : by_session_) {
    for (const Entry& entry : entries)
      checkpoint.answers[session].push_back({session, entry.request, entry.value});
  }
}

}  // namespace gpumem::core
