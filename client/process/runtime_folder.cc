#include "client/process/runtime_folder.h"

#include <grp.h>
#include <pwd.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <vector>

#include "base/system/absolute_path.h"
#include "proto/lane.h"

namespace gpumem::client {
namespace {

std::string user_name() {
  std::vector<char> room(4096);
  passwd entry{};
  passwd* found = nullptr;
  ::getpwuid_r(::geteuid(), &entry, room.data(), room.size(), &found);
  return found != nullptr ? entry.pw_name : std::to_string(::geteuid());
}

struct Group {
  std::string name;
  bool lists_user = false;  // in the group database; this process may have started before that
};

Group group_of(gid_t id, const std::string& user) {
  std::vector<char> room(65536);
  group entry{};
  group* found = nullptr;
  ::getgrgid_r(id, &entry, room.data(), room.size(), &found);
  if (found == nullptr) return {std::to_string(id)};
  Group result{entry.gr_name};
  for (char** member = entry.gr_mem; *member != nullptr; ++member) {
    if (user == *member) result.lists_user = true;
  }
  return result;
}

bool process_is_in(gid_t id) {
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(::getgroups(0, nullptr), 0)));
  const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<std::size_t>(std::max(count, 0)));
  return ::getegid() == id || std::find(groups.begin(), groups.end(), id) != groups.end();
}

// Root's own, that of nobody, or the one that is named for the broker's user: whoever joined such a group
// could do more than connect.
bool is_no_group_to_join(const struct stat& info, const std::string& group) {
  std::vector<char> room(4096);
  passwd entry{};
  passwd* owner = nullptr;
  ::getpwuid_r(info.st_uid, &entry, room.data(), room.size(), &owner);
  const bool is_private = owner != nullptr && owner->pw_gid == info.st_gid && group == owner->pw_name;
  return info.st_gid == 0 || group == "nogroup" || group == "nobody" || is_private;
}

std::string permission_advice(const std::filesystem::path& socket) {
  struct stat info {};
  const std::string folder = socket.parent_path().string();
  if (::stat(socket.c_str(), &info) != 0 && ::stat(folder.c_str(), &info) != 0) {
    return "the folder " + folder + " cannot be entered";
  }
  const std::string user = user_name();
  const Group group = group_of(info.st_gid, user);
  if (process_is_in(info.st_gid)) {
    return "though you are in its group " + group.name + ": ask the administrator to check the modes of " +
           folder + " and of the socket";
  }
  if (group.lists_user) {
    return "you are in its group " + group.name +
           ", but have been logged in since before that: log in again, or " + "`newgrp " + group.name + "`";
  }
  if (is_no_group_to_join(info, group.name)) {
    const bool is_brokers = socket.filename() == kLaneSocketName || socket.filename() == kApiSocketName;
    return "its group " + group.name + " is not one to join; ask the administrator to set " +
           (is_brokers ? "socket_group in [broker] of gpumemd.toml" : "Group= of gpumem-history.service") +
           " to a group of those who may borrow";
  }
  return "you are not in its group " + group.name + "; ask the administrator: usermod -aG " + group.name +
         " " + user;
}

// Of a user that this process's user namespace does not map: the kernel does not tell which. It was placed
// from outside, by whoever made the container.
bool is_outside(uid_t uid) {
  std::ifstream overflow("/proc/sys/kernel/overflowuid"), map("/proc/self/uid_map");
  uid_t unmapped = 0;
  std::uint64_t first = 0, outside = 0, count = 0;
  if (!(overflow >> unmapped) || uid != unmapped || !(map >> first >> outside >> count)) return false;
  constexpr std::uint64_t kAll = std::numeric_limits<std::uint32_t>::max();
  return first != 0 || outside != 0 || count != kAll;
}

bool is_trusted(uid_t uid) { return uid == 0 || uid == ::geteuid() || is_outside(uid); }

// Root alone has put what is in there.
bool is_roots_alone(const std::filesystem::path& folder) {
  struct stat info {};
  return ::stat(folder.c_str(), &info) == 0 && info.st_uid == 0 && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// A set-user-id program reads no variables.
const char* hint_of_variable() {
  return ::getauxval(AT_SECURE) != 0 ? "" : "; if its runtime folder is another one, set GPUMEM_RUNTIME_DIR";
}

Error not_trusted(const std::filesystem::path& path, const std::string& why) {
  return {Code::kPermissionDenied, path.string() + " " + why +
                                       ", who could name any driver to load: use a runtime folder of your "
                                       "own, or one that belongs to root "
                                       "or that root has placed, such as /run/gpumemd"};
}

}  // namespace

Result<void> check_owner(const std::filesystem::path& socket) {
  const std::filesystem::path folder = socket.parent_path();
  struct stat link {
  }, info{}, file{};
  if (::lstat(folder.c_str(), &link) != 0 || ::stat(folder.c_str(), &info) != 0) return {};
  if (!is_trusted(link.st_uid) && S_ISLNK(link.st_mode))
    return not_trusted(folder, "is a link of user " + std::to_string(link.st_uid));
  if ((info.st_mode & S_IWOTH) != 0) return not_trusted(folder, "can be written to by every user");
  if (!is_trusted(info.st_uid) && !is_roots_alone(folder / ".."))
    return not_trusted(folder, "belongs to user " + std::to_string(info.st_uid));
  if (::lstat(socket.c_str(), &file) != 0 || is_trusted(file.st_uid) || file.st_uid == info.st_uid) return {};
  return not_trusted(socket, "belongs to user " + std::to_string(file.st_uid));
}

std::filesystem::path runtime_folder(const std::string& named) {
  const char* set = ::secure_getenv("GPUMEM_RUNTIME_DIR");
  if (set == nullptr || *set == '\0') set = kDefaultRuntimeFolder;
  return absolute_or_same(named.empty() ? set : named);
}

Result<std::filesystem::path> absolute_runtime_folder(const std::string& named) {
  const std::filesystem::path folder = runtime_folder(named);
  if (folder.is_absolute()) return folder;
  return Error{Code::kNotFound, "the runtime folder " + folder.string() +
                                    " is a relative path, and the working directory was deleted: give an "
                                    "absolute path"};
}

bool may_connect(const std::filesystem::path& folder) {
  return ::access((folder / kLaneSocketName).c_str(), W_OK) == 0;
}

std::filesystem::path driver_folder(const std::string& told) {
  const char* set = ::secure_getenv("GPUMEM_DRIVER_DIR");
  return set != nullptr && *set != '\0' ? set : told;
}

Error connect_error(const std::filesystem::path& socket, int number) {
  const std::string where = socket.string();
  switch (number) {
    case ENOENT:
    case ENOTDIR:
      return {Code::kUnavailable, "no broker at " + where +
                                      ": is gpumemd running? (systemctl status gpumemd" + hint_of_variable() +
                                      ")"};
    case ECONNREFUSED:
      return {Code::kUnavailable, "no broker listens at " + where +
                                      ": the socket is left over from one that has " +
                                      "ended (systemctl restart gpumemd)"};
    case EACCES:
    case EPERM:
      return {Code::kPermissionDenied, "you may not connect to " + where + ": " + permission_advice(socket)};
    case ENAMETOOLONG:
      return {Code::kInvalidArgument, "the path " + where + " is too long for a socket (107 bytes at most)"};
    case EAGAIN:
      return {Code::kUnavailable,
              "the broker at " + where + " does not take new connections (systemctl status gpumemd)"};
    default: return errno_error(number, "cannot connect to " + where);
  }
}

}  // namespace gpumem::client
