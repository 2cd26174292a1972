#include "daemon/host/state/device_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/system/unique_fd.h"
#include "daemon/host/system/group_access.h"
#include "proto/lane.h"
#include "shm/seqlock.h"

namespace gpumem::host {
namespace {

// To connect to a socket takes the right to write to it.
Result<void> open_as(int file, const std::filesystem::path& path, const std::filesystem::path& socket) {
  struct stat wanted {
  }, own{};
  if (::stat(socket.c_str(), &wanted) != 0 || ::fstat(file, &own) != 0)
    return errno_error(errno, "cannot look at " + socket.string());
  const bool all = (wanted.st_mode & S_IWOTH) != 0;
  const bool group = (wanted.st_mode & S_IWGRP) != 0;
  if (group && !all && wanted.st_gid != own.st_gid)
    return open_to_group(path, wanted.st_gid, GroupAccess::kRead);
  const mode_t mode = S_IRUSR | S_IWUSR | (all || group ? S_IRGRP : 0U) | (all ? S_IROTH : 0U);
  return ::fchmod(file, mode) == 0 ? Result<void>() : errno_error(errno, "cannot set the mode");
}

// Until the page is complete: a reader finds the page of the broker before, or all of this one.
std::filesystem::path next_of(const std::filesystem::path& path) { return path.string() + ".new"; }

std::uint64_t pid_namespace() {
  struct stat own {};
  return ::stat("/proc/self/ns/pid", &own) == 0 ? own.st_ino : 0;
}

}  // namespace

void DevicePages::Unmap::operator()(DevicePage* page) const { ::munmap(page, kDevicePageBytes); }

Result<DevicePages> DevicePages::create(const std::filesystem::path& folder,
                                        const std::vector<std::string>& devices) {
  DevicePages pages;
  for (const std::string& device : devices) {
    const std::filesystem::path path = folder / device_page_name(device);
    auto page = make(path, folder / kApiSocketName);
    if (!page) {
      ::unlink(next_of(path).c_str());
      return page.error().in(path.string());
    }
    pages.pages_.push_back(std::move(*page));
  }
  return pages;
}

Result<DevicePages::Page> DevicePages::make(const std::filesystem::path& path,
                                            const std::filesystem::path& socket) {
  const std::filesystem::path next = next_of(path);
  ::unlink(next.c_str());
  const UniqueFd made(::open(next.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  const int file = made.get();
  if (file < 0) return errno_error(errno, "cannot make it");
  if (const int failed = ::posix_fallocate(file, 0, kDevicePageBytes); failed != 0)
    return errno_error(failed, "cannot size it");
  void* const mapped = ::mmap(nullptr, kDevicePageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return errno_error(errno, "cannot map it");
  Page page{path, std::unique_ptr<DevicePage, Unmap>(static_cast<DevicePage*>(mapped))};
  initialize(*page.mapped);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  if (::fcntl(file, F_OFD_SETLK, &lock) != 0) return errno_error(errno, "cannot lock it");
  if (auto opened = open_as(file, next, socket); !opened) return opened.error();
  if (::rename(next.c_str(), path.c_str()) != 0) return errno_error(errno, "cannot rename it");
  return page;
}

DevicePages::~DevicePages() {
  for (const Page& page : pages_) ::unlink(page.path.c_str());
}

void DevicePages::publish(std::size_t device, DeviceListing& listing) {
  static const std::uint64_t kNamespace = pid_namespace();
  listing.broker = static_cast<std::uint64_t>(::getpid());
  listing.pid_namespace = kNamespace;
  DevicePage& page = *pages_.at(device).mapped;
  const std::size_t used = offsetof(DeviceListing, processes) + listing.process_count * sizeof(ListedProcess);
  seqlock_write(page.sequence, page.listing, listing, used);
}

}  // namespace gpumem::host
