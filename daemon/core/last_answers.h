#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "daemon/core/outbox.h"
#include "daemon/core/types.h"

namespace gpumem::core {

/// The last answers to requests that must not be executed twice. A client whose broker has ended
/// before the answer came makes the request again at the next one, under the same number.
class LastAnswers {
 public:
  /// Requests of a session that may be under way at once; of more, the first are made again.
  static constexpr std::size_t kMostOfSession = Checkpoint::kMostAnswers;

  /// `outbox`  is told of each, for the next broker; outlives it.
  explicit LastAnswers(Outbox& outbox) : outbox_(outbox) {}

  /// The session's request number `request` has been made. 0: it is never made again.
  void note(SessionId session, std::uint64_t request, std::uint64_t value);
  void restore(const Checkpoint::Answer& answer);
  /// The answer that an earlier broker gave, or was about to give.
  std::optional<std::uint64_t> find(SessionId session, std::uint64_t request) const;
  void drop(SessionId session) { by_session_.erase(session); }
  void add_to(Checkpoint& checkpoint) const;

 private:
  struct Entry {
    std::uint64_t request = 0;
    std::uint64_t value = 0;
    bool restored = false;  ///< of the broker before
  };
  void put(SessionId session, const Entry& entry);

  Outbox& outbox_;
  std::map<SessionId, std::deque<Entry>> by_session_;  ///< the latest last
};

}  // namespace gpumem::core
