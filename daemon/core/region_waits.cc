#include "daemon/core/region_waits.h"

namespace gpumem::core {

void RegionWaits::follow(SessionId session, const std::string& tenant) {
  for (const RequestId id : of_session(session))
    if (find(id)->is_own) change(id, [&](RegionWait& wait) { wait.terms.owner = tenant; });
}

std::vector<RequestId> RegionWaits::take_pressed() {
  std::vector<RequestId> waiting;
  for (const RequestId id : std::exchange(pressed_, {}))
    if (find(id) != nullptr) waiting.push_back(id);
  return waiting;
}

}  // namespace gpumem::core
