#include "tests/promises/asked_sessions.h"

#include <utility>

namespace gpumem::core::promises {

bool AskedSessions::update(SessionId session, DeviceIndex device, AskedFor asked, bool rung, bool kept,
                           TimePoint now) {
  const auto found = told_.find({session, device});
  if (found == told_.end()) {
    if (asked.bytes.is_zero()) return true;
    told_[{session, device}] = {asked, now, asked.deadline};
    return rung;
  }
  Told& told = found->second;
  const Bytes before = std::exchange(told.asked, asked).bytes;
  if (asked.bytes.is_zero()) {
    told.owes = kept || told.spent;
    if (!told.owes) told_.erase(found);
    return true;
  }
  // Memory that it keeps is due by the earlier deadline, although the rest of the request has a later one.
  if (kept && asked.bytes < before && asked.deadline > told.due) told.owes = true;
  if (!told.owes) told.due = asked.deadline;
  return asked.bytes <= before || rung;
}

void AskedSessions::said_spent(SessionId session, DeviceIndex device) {
  if (const auto told = told_.find({session, device}); told != told_.end()) told->second.spent = true;
}

void AskedSessions::forget(SessionId session) {
  told_.erase(told_.lower_bound({session, 0}), told_.upper_bound({session, ~DeviceIndex{0}}));
}

std::optional<AskedSessions::Told> AskedSessions::told(SessionId session, DeviceIndex device) const {
  const auto found = told_.find({session, device});
  return found == told_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace gpumem::core::promises
