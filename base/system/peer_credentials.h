#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace gpumem {

/// The process at the other end of a Unix socket, as it was when it connected. Nothing, and errno: the kernel
/// does not tell.
std::optional<ucred> peer_credentials(int socket);

/// The groups of that process, with `primary` first. Only that one if the kernel does not tell the others.
std::vector<std::uint32_t> peer_groups(int socket, std::uint32_t primary);

}  // namespace gpumem
