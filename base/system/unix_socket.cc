#include "base/system/unix_socket.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace gpumem {
namespace {

int call_with_address(decltype(::connect)* call, int socket, const std::filesystem::path& path) {
  sockaddr_un address{};
  if (path.native().size() > kLongestSocketPath) {
    errno = ENAMETOOLONG;
    return -1;
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.native().size());
  return call(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

}  // namespace

int connect_unix(int socket, const std::filesystem::path& path) {
  return call_with_address(::connect, socket, path);
}

int bind_unix(int socket, const std::filesystem::path& path) {
  return call_with_address(::bind, socket, path);
}

}  // namespace gpumem
