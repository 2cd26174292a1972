#include "daemon/host/system/group_access.h"

#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

namespace gpumem::host {
namespace {

constexpr const char* kAccessList = "system.posix_acl_access";

struct AccessList {
  posix_acl_xattr_header header{POSIX_ACL_XATTR_VERSION};
  std::array<posix_acl_xattr_entry, 5> entries;
};

AccessList list_for_group(unsigned gid, __u16 rights) {
  constexpr auto kNobody = static_cast<__u32>(ACL_UNDEFINED_ID);
  return {.entries = {{{ACL_USER_OBJ, ACL_READ | ACL_WRITE, kNobody},
                       {ACL_GROUP_OBJ, 0, kNobody},
                       {ACL_GROUP, rights, gid},
                       {ACL_MASK, rights, kNobody},
                       {ACL_OTHER, 0, kNobody}}}};
}

}  // namespace

Result<void> open_to_group(const std::filesystem::path& path, unsigned gid, GroupAccess access) {
  const bool writes = access == GroupAccess::kReadAndWrite;
  ::removexattr(path.c_str(), kAccessList);
  if (::chmod(path.c_str(), writes ? 0660 : 0640) != 0)
    return errno_error(errno, "cannot set the mode of " + path.string());
  struct stat found {};
  if (::stat(path.c_str(), &found) == 0 && found.st_gid == gid) return {};
  if (::chown(path.c_str(), static_cast<uid_t>(-1), gid) == 0) return {};
  const auto list = list_for_group(gid, writes ? ACL_READ | ACL_WRITE : ACL_READ);
  if (::setxattr(path.c_str(), kAccessList, &list, sizeof list, 0) == 0) return {};
  return errno_error(errno, "cannot open " + path.string() + " to group " + std::to_string(gid));
}

}  // namespace gpumem::host
