#pragma once
#include <cstdint>
#include <string>

namespace gpumem::history {

/// A user who asks, and the rows that this user may see.
struct Viewer {
  bool all = false;
  std::uint32_t uid = 0;  ///< else those of this user, of times when the number was its tenant's
  /// And of this tenant, which is a group's, from the user's first day on. Empty: the user is no member of
  /// one.
  std::string tenant{};
};

/// The condition of SQL for the rows that the viewer may see, by their columns `uid`, `tenant` and `time`, of
/// which a second has `unit`. The first parameter of the statement is to be the viewer's tenant.
std::string rows_for(const Viewer& viewer, const std::string& unit = "1");
/// As rows_for(), without those of the tenant.
std::string own_rows_for(const Viewer& viewer);

}  // namespace gpumem::history
