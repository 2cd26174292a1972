#include "base/system/peer_credentials.h"

#include <cerrno>

namespace gpumem {

std::optional<ucred> peer_credentials(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return std::nullopt;
  return credentials;
}

std::vector<std::uint32_t> peer_groups(int socket, std::uint32_t primary) {
  std::vector<std::uint32_t> groups(64);
  const auto read = [&] {
    auto length = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    const bool is_read = ::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &length) == 0;
    groups.resize(is_read || errno == ERANGE ? length / sizeof(gid_t) : 0);  // as many as there are
    return is_read;
  };
  if (!read() && !groups.empty() && !read()) groups.clear();
  groups.insert(groups.begin(), primary);
  return groups;
}

}  // namespace gpumem
