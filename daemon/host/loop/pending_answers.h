#pragma once
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/core/broker/executor.h"

namespace gpumem::host {

/// The requests that somebody waits for the answer of, by request and by session.
/// Threads  one.
template <class AnswerOf>
class PendingAnswers {
 public:
  using Answer = AnswerOf;

  void add(RequestId request, SessionId session, Answer answer) {
    by_request_.emplace(request, Pending{session, std::move(answer)});
    by_session_.emplace(session, request);
  }
  /// Takes out the answer to `request`; nothing if nobody waits for it (any more).
  std::optional<Answer> take(RequestId request) {
    auto pending = by_request_.extract(request);
    if (pending.empty()) return std::nullopt;
    by_session_.erase({pending.mapped().session, request});
    return std::move(pending.mapped().answer);
  }
  /// Takes out those of `session`. Costs what these are, not what there is.
  std::vector<Answer> take_all_of(SessionId session) {
    std::vector<Answer> answers;
    auto own = by_session_.lower_bound({session, {}});
    while (own != by_session_.end() && own->first == session) {
      answers.push_back(std::move(by_request_.extract(own->second).mapped().answer));
      own = by_session_.erase(own);
    }
    return answers;
  }
  std::size_t size() const { return by_request_.size(); }

 private:
  struct Pending {
    SessionId session;
    Answer answer;
  };
  std::unordered_map<RequestId, Pending> by_request_;
  std::set<std::pair<SessionId, RequestId>> by_session_;
};

using PendingGrowths = PendingAnswers<core::Executor::GrowAnswer>;
using PendingMaps = PendingAnswers<core::Executor::MapAnswer>;

}  // namespace gpumem::host
