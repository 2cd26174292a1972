#include "daemon/host/pending_growths.h"

#include <utility>

namespace gpumem::host {

void PendingGrowths::add(RequestId request, SessionId session, Answer answer) {
  by_request_.emplace(request, Pending{session, std::move(answer)});
  by_session_[session].insert(request);
}

std::optional<PendingGrowths::Answer> PendingGrowths::take(RequestId request) {
  auto pending = by_request_.extract(request);
  if (pending.empty()) return std::nullopt;
  const auto session = by_session_.find(pending.mapped().session);
  session->second.erase(request);
  if (session->second.empty()) by_session_.erase(session);
  return std::move(pending.mapped().answer);
}

std::vector<PendingGrowths::Answer> PendingGrowths::take_all_of(SessionId session) {
  std::vector<Answer> answers;
  const auto own = by_session_.extract(session);
  if (own.empty()) return answers;
  for (const RequestId request : own.mapped())
    answers.push_back(std::move(by_request_.extract(request).mapped().answer));
  return answers;
}

}  // namespace gpumem::host
