#pragma once
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "daemon/core/executor.h"

namespace gpumem::host {

/// The growths that somebody waits for the answer of, by request and by session.
/// Threads  one.
class PendingGrowths {
 public:
  using Answer = core::Executor::GrowAnswer;

  void add(RequestId request, SessionId session, Answer answer);
  /// Takes out the answer to `request`; nothing if nobody waits for it (any more).
  std::optional<Answer> take(RequestId request);
  /// Takes out those of `session`. Costs what these are, not what there is.
  std::vector<Answer> take_all_of(SessionId session);
  std::size_t size() const { return by_request_.size(); }

 private:
  struct Pending {
    SessionId session;
    Answer answer;
  };
  std::unordered_map<RequestId, Pending> by_request_;
  std::unordered_map<SessionId, std::unordered_set<RequestId>> by_session_;
};

}  // namespace gpumem::host
