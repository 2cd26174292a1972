#include "daemon/host/state/runtime_folder.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/log.h"
#include "base/system/files.h"
#include "base/system/system_mode.h"
#include "base/system/unix_socket.h"
#include "base/text/number.h"
#include "daemon/host/limits/socket_disposal.h"
#include "daemon/host/state/folder_lock.h"
#include "daemon/host/system/group_access.h"
#include "proto/lane.h"

namespace gpumem::host {
namespace {

// Whether anybody accepts connections there. The folder's lock is ours, so it would not be a gpumemd.
bool is_listening(const std::filesystem::path& path) {
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM, SOCK_DGRAM}) {
    const UniqueFd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (connect_unix(probe.get(), path) == 0) return true;
    if (errno == EAGAIN) return true;
  }
  return false;
}

Result<void> clear_stale_socket(const std::filesystem::path& path) {
  if (path.native().size() > kLongestSocketPath)
    return Error{Code::kInvalidArgument,
                 "'" + path.string() +
                     "' is too long for a socket (107 bytes at most): choose a shorter --runtime-dir"};
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) {
    if (errno == ENOENT) return {};
    return errno_error(errno, "cannot look at " + path.string());
  }
  if (!S_ISSOCK(found.st_mode))
    return Error{Code::kAlreadyExists,
                 path.string() + " exists and is no socket: remove it, or choose another --runtime-dir"};
  if (is_listening(path))
    return Error{Code::kAlreadyExists,
                 "another program listens on " + path.string() + ": end it, or choose another --runtime-dir"};
  if (::unlink(path.c_str()) != 0)
    return errno_error(errno, "cannot remove the left-over socket " + path.string());
  return {};
}

Result<void> make_inside(const std::filesystem::path& folder, mode_t mode) {
  struct stat found {};
  if (::mkdir(folder.c_str(), mode) == 0) return {};
  const int failed = errno;
  if (failed != EEXIST || ::lstat(folder.c_str(), &found) != 0)
    return errno_error(failed, "cannot make " + folder.string());
  if (S_ISDIR(found.st_mode)) return {};
  return Error{Code::kAlreadyExists, folder.string() + " exists and is no folder: remove it"};
}

void warn_of_group(const std::filesystem::path& path, unsigned wanted) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0 || found.st_gid == wanted) return;
  spdlog::warn("socket_group does not apply to {}: the service manager made it, for group {} (SocketGroup=)",
               path.string(), found.st_gid);
}

// The socket was listening before this broker could have the kernel refuse descriptors, so its waiting
// connections may have brought some.
Result<ListeningSocket> adopt(PassedSocket socket, const KernelFeatures& kernel) {
  const int flags = ::fcntl(socket.fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.fd.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return errno_error(errno, "cannot use the socket that was passed");
  const bool refused = socket.is_own && kernel.pass_rights && refuse_descriptors(socket.fd.get());
  return ListeningSocket{.fd = std::move(socket.fd), .takes_descriptors = !refused, .shared = !socket.is_own};
}

std::optional<PassedSocket> passed_socket(PassedDescriptors& passed, std::string_view name,
                                          std::string_view own_name) {
  if (auto own = passed.take(own_name)) return PassedSocket{std::move(*own), true};
  if (auto socket = passed.take(name)) return PassedSocket{std::move(*socket), false};
  return std::nullopt;
}

}  // namespace

Result<unsigned> resolve_socket_group(const std::string& group) {
  if (group.empty()) return static_cast<unsigned>(::getegid());
  if (const auto gid = whole_number<unsigned>(group)) return *gid;
  if (const ::group* entry = ::getgrnam(group.c_str())) return entry->gr_gid;
  return Error{Code::kInvalidArgument,
               "socket_group: there is no group '" + group + "' (addgroup --system " + group + ")"};
}

PassedSockets PassedSockets::of(PassedDescriptors& passed) {
  return {passed_socket(passed, kLaneDescriptor, kOwnLaneDescriptor),
          passed_socket(passed, kApiDescriptor, kOwnApiDescriptor)};
}

Result<void> RuntimeFolder::Entry::check_passed(const std::filesystem::path& folder) const {
  const std::filesystem::path path = folder / name;
  if (::sd_is_socket_unix(passed->fd.get(), type, 1, path.c_str(), 0) > 0) return {};
  return Error{Code::kFailedPrecondition,
               "the socket that the service manager passed does not listen on " + path.string() +
                   ": make ListenStream= or ListenSequentialPacket= of its unit agree with runtime_dir"};
}

Result<RuntimeFolder> RuntimeFolder::claim(const std::filesystem::path& folder, const std::string& group,
                                           PassedSockets passed) {
  auto gid = resolve_socket_group(group);
  if (!gid && passed.lane && passed.api) {
    spdlog::warn("{}", gid.error().message);
    gid = resolve_socket_group("");
  }
  if (!gid) return gid.error();
  if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST)
    return errno_error(errno, "cannot make the runtime folder " + folder.string() +
                                  " (run as root, or choose another "
                                  "--runtime-dir)");
  if (auto closed = check_closed(folder, "--runtime-dir"); !closed) return closed.error();
  for (const auto& [name, mode] : {std::pair(kPrivateFolderName, 0711), {kEmptyFolderName, 0555}})
    if (auto made = make_inside(folder / name, mode); !made) return made.error();
  if (auto closed = check_closed(private_folder_of(folder), "--runtime-dir"); !closed) return closed.error();
  auto lock = lock_folder(folder, lock_file_of(folder), "--runtime-dir");
  if (!lock) return lock.error();
  RuntimeFolder claimed(
      folder, {kLaneSocketName, SOCK_SEQPACKET, kLaneDescriptor, kOwnLaneDescriptor, std::move(passed.lane)},
      {kApiSocketName, SOCK_STREAM, kApiDescriptor, kOwnApiDescriptor, std::move(passed.api)},
      {kMetricsSocketName, SOCK_STREAM, {}, {}, {}});
  for (const Entry* entry : {&claimed.lane_, &claimed.api_, &claimed.metrics_}) {
    auto usable = entry->passed ? entry->check_passed(folder) : clear_stale_socket(folder / entry->name);
    if (!usable) return usable.error();
    if (entry->passed && !entry->passed->is_own && !group.empty()) warn_of_group(folder / entry->name, *gid);
  }
  claimed.lock_ = std::move(*lock);
  claimed.gid_ = *gid;
  return claimed;
}

RuntimeFolder::~RuntimeFolder() {
  if (!lock_.valid()) return;
  for (Entry* entry : {&lane_, &api_, &metrics_}) {
    if (!entry->is_own) continue;
    ::unlink((path_ / entry->name).c_str());
    // This is the last copy. Connections that nobody has accepted may have brought descriptors whose close
    // blocks (a TCP socket that lingers). The end of the process closes them without waiting.
    static_cast<void>(entry->listening.release());
  }
}

void RuntimeFolder::tell(const std::string& line) const { tell_in_lock(lock_.get(), line); }

void RuntimeFolder::publish_except(const std::vector<std::string>& names) const {
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  const std::filesystem::path file = path_ / system_mode::kExceptFile, next = file.string() + ".new";
  if (names.empty()) {
    ::unlink(file.c_str());
  } else if (auto written = write_durably(next, text); !written) {
    spdlog::warn("[system] except is not in force: {}", written.error().message);
  } else if (::chmod(next.c_str(), 0644) != 0 || ::rename(next.c_str(), file.c_str()) != 0) {
    spdlog::warn("[system] except is not in force: {}", errno_error(errno, file.string()).message);
  }
}

Result<ListeningSocket> RuntimeFolder::listen_on_lane(const KernelFeatures& kernel) {
  return listen(lane_, gid_, kernel);
}

Result<ListeningSocket> RuntimeFolder::listen_on_api(const KernelFeatures& kernel) {
  return listen(api_, gid_, kernel);
}

Result<ListeningSocket> RuntimeFolder::listen_on_metrics(unsigned gid, const KernelFeatures& kernel) {
  return listen(metrics_, gid, kernel);
}

NamedDescriptors RuntimeFolder::pass_on() {
  NamedDescriptors sockets;
  for (Entry* entry : {&lane_, &api_}) {
    if (!entry->listening.valid()) continue;
    const std::string_view name = entry->is_own ? entry->own_name : entry->passed_name;
    sockets.push_back({std::string(name), std::move(entry->listening), false});
    entry->is_own = false;
  }
  return sockets;
}

Result<ListeningSocket> RuntimeFolder::listen(Entry& entry, unsigned gid, const KernelFeatures& kernel) {
  if (entry.passed) {
    entry.is_own = entry.passed->is_own;
    entry.listening = duplicate_of(entry.passed->fd.get());
    return adopt(std::move(*std::exchange(entry.passed, std::nullopt)), kernel);
  }
  const std::filesystem::path path = path_ / entry.name;
  UniqueFd socket(::socket(AF_UNIX, entry.type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return errno_error(errno, "cannot make a socket");
  if (bind_unix(socket.get(), path) != 0) return errno_error(errno, "cannot bind " + path.string());
  entry.is_own = true;
  if (auto opened = open_to_group(path, gid, GroupAccess::kReadAndWrite); !opened) return opened.error();
  // Before it listens: a connection inherits it as it is then.
  const bool refused = kernel.pass_rights && refuse_descriptors(socket.get());
  if (::listen(socket.get(), 4096) != 0) return errno_error(errno, "cannot listen on " + path.string());
  entry.listening = duplicate_of(socket.get());
  return ListeningSocket{.fd = std::move(socket), .takes_descriptors = !refused, .shared = false};
}

Result<void> RuntimeFolder::open_metrics(unsigned gid) const {
  return metrics_.is_own ? open_to_group(path_ / metrics_.name, gid, GroupAccess::kReadAndWrite)
                         : Result<void>();
}

}  // namespace gpumem::host
