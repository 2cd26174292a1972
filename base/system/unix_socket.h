#pragma once
#include <sys/un.h>

#include <cstddef>
#include <filesystem>

namespace gpumem {

/// The bytes of the longest path of a Unix socket: 107.
inline constexpr std::size_t kLongestSocketPath = sizeof(sockaddr_un::sun_path) - 1;

/// As connect(2) and bind(2), with a path as the address. Nothing but system calls.
/// Errors  -1 and errno; ENAMETOOLONG: the path is longer than kLongestSocketPath.
int connect_unix(int socket, const std::filesystem::path& path);
int bind_unix(int socket, const std::filesystem::path& path);

}  // namespace gpumem
