#include "daemon/core/region_waits.h"

namespace gpumem::core {

void RegionWaits::follow(SessionId session, const std::string& tenant) {
  for (const RequestId id : of_session(session))
    if (find(id)->is_own) change(id, [&](RegionWait& wait) { wait.terms.owner = tenant; });
}

}  // namespace gpumem::core
