#include "daemon/history/viewer.h"

namespace gpumem::history {

std::string own_rows_for(const Viewer& viewer) {
  return viewer.all ? "1" : "uid=" + std::to_string(viewer.uid);
}

// A user's first day is that of the first session. Rows of a tenant that was a user's belong to that user.
std::string rows_for(const Viewer& viewer, const std::string& unit) {
  std::string own = own_rows_for(viewer);
  if (viewer.all || viewer.tenant.empty()) return own;
  return "(" + own + " OR (tenant=?1 AND uid=-1 AND time>=" + unit +
         "*(SELECT day FROM member WHERE tenant=?1 AND uid=" + std::to_string(viewer.uid) + ")))";
}

}  // namespace gpumem::history
