#include "client/shim/nvml/device_view.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/system/unique_fd.h"
#include "client/process/runtime_folder.h"
#include "client/shim/figures.h"
#include "client/shim/real.h"
#include "client/shim/system_mode.h"
#include "cuda/uuid.h"

namespace gpumem::shim {
namespace {

using Figures = decltype(&::gpumem_shim_figures);

constinit RealCall<decltype(::nvmlDeviceGetUUID)> real_uuid("nvmlDeviceGetUUID");

bool shows_device() {
  const char* const value = ::secure_getenv("GPUMEM_SHOW_DEVICE");
  return value != nullptr && std::string_view(value) == "1";
}

/// The shim libcuda.so.1 beside this library knows what is lent. A driver in its place does not have the
/// function. In system mode a program may have loaded the driver before, or by its path.
Figures find_figures() {
  void* const loaded = is_system_mode() ? ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  if (loaded != nullptr) return reinterpret_cast<Figures>(::dlsym(loaded, "gpumem_shim_figures"));
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&find_figures), &self) == 0) return nullptr;
  const auto beside = std::filesystem::path(self.dli_fname).parent_path() / "libcuda.so.1";
  void* const library = ::dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
  return library != nullptr ? reinterpret_cast<Figures>(::dlsym(library, "gpumem_shim_figures")) : nullptr;
}

constinit Published<Figures> published_figures;

std::optional<SliceFigures> slice_of(const cuda::DeviceUuid& uuid) {
  const Figures figures = shows_device() ? nullptr : published_figures.get(find_figures);
  SliceFigures slice;
  if (figures == nullptr || !figures(uuid.bytes.data(), &slice.total, &slice.used, &slice.free))
    return std::nullopt;
  // A program that subtracts one of them must not get a negative number. A total of zero is no answer.
  slice.used = std::min(slice.used, slice.total);
  slice.free = std::min(slice.free, slice.total);
  return slice.total > 0 ? std::optional(slice) : std::nullopt;
}

/// The broker holds a write lock as long as it lives. Takes none itself.
bool is_kept_up(int file) {
  struct flock lock {};
  lock.l_type = F_RDLCK;
  return ::fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_WRLCK;
}

bool is_in_namespace(std::uint64_t inode) {
  struct stat own {};
  return ::stat("/proc/self/ns/pid", &own) == 0 && own.st_ino == inode;
}

std::unique_ptr<DeviceListing> listing_of(const cuda::DeviceUuid& uuid) {
  const auto path = client::runtime_folder("") / device_page_name(to_string(uuid));
  if (!client::check_owner(path)) return nullptr;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file.valid() || !is_kept_up(file.get()) || ::fstat(file.get(), &info) != 0 ||
      info.st_size < static_cast<off_t>(kDevicePageBytes))
    return nullptr;
  void* const mapped = ::mmap(nullptr, kDevicePageBytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto listing = read_listing(*static_cast<const DevicePage*>(mapped));
  ::munmap(mapped, kDevicePageBytes);
  if (!listing) return nullptr;
  if (!is_in_namespace((*listing)->pid_namespace)) (*listing)->process_count = (*listing)->broker = 0;
  return std::move(*listing);
}

}  // namespace

DeviceView DeviceView::of(nvmlDevice_t device) {
  std::array<char, 96> text{};
  if (real_uuid(device, text.data(), text.size()) != NVML_SUCCESS) return {};
  const auto uuid = cuda::parse_device_uuid(text.data());
  if (!uuid) return {};  // a part of a device (MIG)
  return {slice_of(*uuid), listing_of(*uuid)};
}

std::optional<std::uint64_t> DeviceView::used_by(unsigned pid) const {
  if (slice && pid == static_cast<unsigned>(::getpid())) return slice->used;
  if (!listing) return std::nullopt;
  const auto end = listing->processes.begin() + static_cast<std::ptrdiff_t>(listing->process_count);
  const auto found = std::find_if(listing->processes.begin(), end,
                                  [pid](const ListedProcess& one) { return one.pid == pid; });
  return found != end ? std::optional(found->used) : std::nullopt;
}

}  // namespace gpumem::shim
