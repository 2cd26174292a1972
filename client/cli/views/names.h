#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/text/device_name.h"

// Users and devices by name. Name services are asked here, and never by the broker's deciding thread.

namespace gpumem {
class Session;
}

namespace gpumem::cli {

/// The name of the user `uid`, or the number if it has none.
std::string user_name(std::uint32_t uid);

/// The user with this name or number, also of `uid:NUMBER`; none: there is no such name.
std::optional<uid_t> find_user(const std::string& text);

using gpumem::device_name;
/// `gpu0` by the place of `uuid` in `lent`, which is that in `gpumem status`. For a device that is not there,
/// enough of the UUID to tell devices apart.
std::string device_name(const std::string& uuid, const std::vector<std::string>& lent);
/// The UUIDs of the devices that the session's broker lends, by their places.
std::vector<std::string> lent_to(const Session& session);
/// `text` with the names of the `lent` devices in place of their UUIDs.
std::string with_device_names(std::string text, const std::vector<std::string>& lent);

/// `uid:1000`, the tenant of the user of this name; anything else as it is.
std::string tenant_of_user(const std::string& name);

/// `alice (uid:1000)` for the tenant `uid:1000` of a user with a name; other tenants as they are.
std::string tenant_text(const std::string& tenant);

}  // namespace gpumem::cli
