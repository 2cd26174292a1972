#include <algorithm>

#include "base/text/device_name.h"
#include "client/cli/explain/explain.h"
#include "client/cli/views/text.h"

namespace gpumem::cli {
namespace {

std::string heading(const Account& account, const v1::GetStatusResponse& status, WallTime now,
                    const Layout& layout) {
  std::string text = printable(layout.device(account.device));
  for (const v1::DeviceStatus& one : status.devices())
    if (one.uuid() == account.device && !one.name().empty()) text += ", " + printable(one.name());
  if (account.seen.empty()) return text + "\n";
  return text + ", " + age_text(account.seen, now) + " ago\n";
}

std::string moved_note(const Account& account, int looks) {
  std::string text =
      "MOVED: how much the broker's books have changed while it looked at the driver, at each of " +
      std::to_string(looks) + " looks; of the last one.";
  if (account.moving != 0)
    text += " Driver calls of the broker were under way: up to " + size_text(account.moving) +
            " are counted where they were, or where they went.";
  return text;
}

std::string unexplained_note(const Account& account) {
  const auto bytes = account.sum.part("used").part("unexplained").bytes.value_or(0);
  if (bytes > 0)
    return "Unexplained: in use, as the driver says, by no process that it lists. The driver itself may have "
           "it, or "
           "a process that has just come or gone.";
  if (bytes < 0)
    return "Unexplained is negative: the broker still charges memory that the driver has got back. It is on "
           "its way "
           "to the pool.";
  return "";
}

std::string quarantined_note(const Account& account) {
  if (account.device != kHostStore)
    return "Quarantined: not lent any more, but the driver has not got it back yet. Its session gave it "
           "back, or did not come back after a restart of the broker. The broker waits until each process "
           "that has mapped it unmaps it or ends.";
  return "Quarantined: not lent any more, but not free yet. Its session gave it back, or did not come back "
         "after a restart of the broker. The broker waits until no process has the memory open or mapped. "
         "Memory of kind \"driver\" becomes free when the processes that had it have ended.";
}

std::string others_note(const Account& account) {
  if (account.device != kHostStore || account.sum.part("others").bytes.value_or(0) >= 0) return "";
  return "Other memory is negative: the store has lent memory that no program has touched yet. The machine "
         "counts it as free.";
}

std::vector<std::string> notes_of(const Account& account, int looks) {
  std::vector<std::string> notes;
  const Line& used = account.sum.part("used");
  if (!account.problem.empty())
    notes.push_back("The driver's figures are not known: " + printable(account.problem) + ".");
  if (!account.is_settled) notes.push_back(moved_note(account, looks));
  if (account.reserved_by_jobs != 0)
    notes.push_back("Of the idle part, " + size_text(account.reserved_by_jobs) + " are reserved by jobs.");
  if (used.part("pool").part("quarantined").bytes.value_or(0) != 0)
    notes.push_back(quarantined_note(account));
  if (account.estimated != 0)
    notes.push_back("Of the contexts, " + size_text(account.estimated) +
                    " are estimates: the driver does not tell.");
  if (used.bytes && !used.part("contexts").bytes)
    notes.push_back(
        "Not told: the driver does not tell the memory of processes. Contexts and memory past the broker are "
        "in unexplained.");
  for (std::string note : {unexplained_note(account), others_note(account)})
    if (!note.empty()) notes.push_back(std::move(note));
  return notes;
}

}  // namespace

std::string account_text(const Account& account, const v1::GetStatusResponse& status, int looks, WallTime now,
                         const Layout& layout) {
  std::string text =
      heading(account, status, now, layout) + lines_text({account.sum}, layout, !account.is_settled);
  for (const std::string& note : notes_of(account, looks)) text += wrapped(note);
  return text;
}

Json account_json(const Account& account) {
  return {{"device", account.device},
          {"seen", account.seen.empty() ? Json() : Json(account.seen)},
          {"problem", account.problem.empty() ? Json() : Json(account.problem)},
          {"settled", account.is_settled},
          {"moving", account.moving},
          {"reserved_by_jobs", account.reserved_by_jobs},
          {"estimated", account.estimated},
          {"sum", line_json(account.sum)}};
}

}  // namespace gpumem::cli
