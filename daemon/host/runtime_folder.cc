#include "daemon/host/runtime_folder.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "daemon/host/folder_lock.h"
#include "daemon/host/foreign_descriptors.h"
#include "proto/lane.h"

namespace gpumem::host {
namespace {

Result<sockaddr_un> address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = path.string();
  if (text.size() >= sizeof address.sun_path) {
    return Error{Code::kInvalidArgument, "'" + text +
                                             "' is too long for a socket (107 bytes at most): choose a "
                                             "shorter --runtime-dir"};
  }
  std::memcpy(address.sun_path, text.c_str(), text.size() + 1);
  return address;
}

// Whether anybody accepts connections there. The folder's lock is ours, so it would not be a gpumemd.
bool is_listening(const sockaddr_un& address) {
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM, SOCK_DGRAM}) {
    const UniqueFd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
    if (errno == EAGAIN) return true;
  }
  return false;
}

Result<void> clear_stale_socket(const std::filesystem::path& path) {
  auto address = address_of(path);
  if (!address) return address.error();
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) {
    if (errno == ENOENT) return {};
    return errno_error(errno, "cannot look at " + path.string());
  }
  if (!S_ISSOCK(found.st_mode)) {
    return Error{Code::kAlreadyExists,
                 path.string() + " exists and is no socket: remove it, or choose another --runtime-dir"};
  }
  if (is_listening(*address)) {
    return Error{Code::kAlreadyExists,
                 "another program listens on " + path.string() + ": end it, or choose another --runtime-dir"};
  }
  if (::unlink(path.c_str()) != 0)
    return errno_error(errno, "cannot remove the left-over socket " + path.string());
  return {};
}

}  // namespace

Result<unsigned> resolve_group(const std::string& group, std::string_view key) {
  if (group.empty()) return static_cast<unsigned>(::getegid());
  unsigned gid = 0;
  const auto [end, error] = std::from_chars(group.data(), group.data() + group.size(), gid);
  if (error == std::errc() && end == group.data() + group.size()) return gid;
  if (const ::group* entry = ::getgrnam(group.c_str())) return entry->gr_gid;
  return Error{Code::kInvalidArgument,
               std::string(key) + ": there is no group '" + group + "' (addgroup --system " + group + ")"};
}

Result<RuntimeFolder> RuntimeFolder::claim(const std::filesystem::path& folder, const std::string& group) {
  auto gid = resolve_group(group, "socket_group");
  if (!gid) return gid.error();
  if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) {
    return errno_error(errno, "cannot make the runtime folder " + folder.string() +
                                  " (run as root, or choose another "
                                  "--runtime-dir)");
  }
  auto lock = lock_folder(folder, "--runtime-dir");
  if (!lock) return lock.error();
  for (const char* name : {kLaneSocketName, kApiSocketName}) {
    if (auto cleared = clear_stale_socket(folder / name); !cleared) return cleared.error();
  }
  return RuntimeFolder(folder, std::move(*lock), *gid);
}

RuntimeFolder::~RuntimeFolder() {
  if (!lock_.valid()) return;
  ::unlink((path_ / kLaneSocketName).c_str());
  ::unlink((path_ / kApiSocketName).c_str());
}

Result<ListeningSocket> RuntimeFolder::listen_on_lane(const KernelFeatures& kernel) const {
  return listen(kLaneSocketName, SOCK_SEQPACKET, kernel);
}

Result<ListeningSocket> RuntimeFolder::listen_on_api(const KernelFeatures& kernel) const {
  return listen(kApiSocketName, SOCK_STREAM, kernel);
}

Result<ListeningSocket> RuntimeFolder::listen(const char* name, int type,
                                              const KernelFeatures& kernel) const {
  const std::filesystem::path path = path_ / name;
  auto address = address_of(path);
  if (!address) return address.error();
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return errno_error(errno, "cannot make a socket");
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    return errno_error(errno, "cannot bind " + path.string());
  }
  if (auto opened = open_to_group(path); !opened) return opened.error();
  // Before it listens: a connection inherits it as it is then.
  const bool refused = kernel.pass_rights && refuse_descriptors(socket.get());
  if (::listen(socket.get(), 4096) != 0) return errno_error(errno, "cannot listen on " + path.string());
  return ListeningSocket{std::move(socket), !refused};
}

Result<void> RuntimeFolder::open_to_group(const std::filesystem::path& path) const {
  if (gid_ != ::getegid() && ::chown(path.c_str(), static_cast<uid_t>(-1), gid_) != 0) {
    return errno_error(errno, "cannot give " + path.string() + " to group " + std::to_string(gid_));
  }
  if (::chmod(path.c_str(), 0660) != 0) return errno_error(errno, "cannot set the mode of " + path.string());
  return {};
}

}  // namespace gpumem::host
