#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

// Users and devices by name. Name services are asked here, and never by the broker's deciding thread.

namespace gpumem::cli {

/// The name of the user `uid`, or the number if it has none.
std::string user_name(std::uint32_t uid);

/// The user with this name or number; none: there is no such name.
std::optional<uid_t> find_user(const std::string& text);

/// Enough of a UUID to tell a machine's devices apart: `GPU-` and eight digits.
inline std::string short_uuid(const std::string& uuid) { return uuid.substr(0, 12); }

/// `uid:1000`, the tenant of the user of this name; anything else as it is.
std::string tenant_of_user(const std::string& name);

/// `alice (uid:1000)` for the tenant `uid:1000` of a user with a name; other tenants as they are.
std::string tenant_text(const std::string& tenant);

}  // namespace gpumem::cli
