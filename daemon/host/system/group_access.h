#pragma once
#include <filesystem>

#include "gpumem/result.h"

namespace gpumem::host {

/// What the members of a group may do with a file.
enum class GroupAccess { kRead, kReadAndWrite };

/// Opens a file of this process's user to that user and the group `gid` alone. Only root and the members of a
/// group may give a file to the group; others open it by an access list, as setfacl(1) writes it.
/// Errors  of the system: the file system has no access lists, for example.
Result<void> open_to_group(const std::filesystem::path& path, unsigned gid, GroupAccess access);

}  // namespace gpumem::host
