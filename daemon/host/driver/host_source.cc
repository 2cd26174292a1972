#include "daemon/host/driver/host_source.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/crash_point.h"
#include "base/system/meminfo.h"
#include "base/system/small_file.h"
#include "daemon/host/driver/host_file.h"

namespace gpumem::host {
namespace {

#ifndef MFD_NOEXEC_SEAL
constexpr unsigned kNotExecutable = 0x0008U;  // Linux 6.3
#else
constexpr unsigned kNotExecutable = MFD_NOEXEC_SEAL;
#endif

int make_file() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int file = ::memfd_create(kHostFileName, kFlags | kNotExecutable);
  return file >= 0 || errno != EINVAL ? file : ::memfd_create(kHostFileName, kFlags);
}

Bytes touched(int file) {
  constexpr std::uint64_t kBlock = 512;
  struct stat info {};
  return {::fstat(file, &info) == 0 ? static_cast<std::uint64_t>(info.st_blocks) * kBlock : 0};
}

std::string meminfo() { return read_small_file("/proc/meminfo").value_or(""); }

}  // namespace

Bytes memory_of_machine() { return meminfo_figure(meminfo(), "MemTotal").value_or(Bytes{}); }

std::optional<cuda::DeviceMemory> use_of_machine() {
  const std::string text = meminfo();
  const auto total = meminfo_figure(text, "MemTotal"), free = meminfo_figure(text, "MemAvailable");
  if (!total || !free) return std::nullopt;
  return cuda::DeviceMemory{.total = *total, .used = total->minus(*free), .free = *free};
}

Result<HeldExtent> HostSource::create(const core::Extent& extent) {
  if (fails_at(CrashPoint::kExtentCreate)) return errno_error(ENOMEM, "memfd_create");
  UniqueFd file(make_file());
  if (!file.valid()) return errno_error(errno, "cannot make a file of memory");
  if (::ftruncate(file.get(), static_cast<off_t>(extent.size.count)) != 0)
    return errno_error(errno, "cannot size a file of memory");
  // Only the broker's user can open it anew: a descriptor for reading stays one.
  if (::fchmod(file.get(), S_IRUSR | S_IWUSR) != 0)
    return errno_error(errno, "cannot set the mode of a file of memory");
  made_[extent.id] = {file.get(), extent.size};
  return HeldExtent{extent, {}, std::move(file)};
}

bool HostSource::destroy(std::vector<HeldExtent> extents, const Proof&) {
  std::size_t in_use = 0;
  for (const HeldExtent& extent : extents) {
    const auto made = made_.find(extent.extent.id);
    if (free_host_file(made->second.first))
      made_.erase(made);
    else
      ++in_use;
  }
  return in_use == 0;
}

std::optional<cuda::DeviceMemory> HostSource::memory() {
  auto memory = use_of_machine();
  if (!memory) return std::nullopt;
  memory->free = memory->free.minus(untouched());
  memory->used = memory->total.minus(memory->free);
  return memory;
}

Bytes HostSource::untouched() const {
  Bytes sum;
  for (const auto& [id, made] : made_) sum += made.second.minus(touched(made.first));
  return sum;
}

}  // namespace gpumem::host
