// The shim as libnvidia-ml.so.1: the figures of the slice for nvidia-smi, and for programs that ask how much
// memory they have.
#include <dlfcn.h>
#include <fcntl.h>
#include <nvml.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "client/shim/figures.h"
#include "client/shim/nvml/calls.h"
#include "client/shim/real.h"
#include "client/shim/system_mode.h"
#include "cuda/uuid.h"

namespace gpumem::shim {
namespace {

const char* error_string(int result) {
  return result == NVML_SUCCESS ? "Success" : "NVML Shared Library Not Found";
}

/// The calling process's limit on a device, its own use, and what is free, in bytes; used + free <= total.
struct SliceFigures {
  std::uint64_t total = 0;
  std::uint64_t used = 0;
  std::uint64_t free = 0;
};

using Figures = decltype(&::gpumem_shim_figures);

constinit RealCall<decltype(::nvmlDeviceGetUUID)> real_uuid("nvmlDeviceGetUUID");

bool shows_device() {
  const char* const value = std::getenv("GPUMEM_SHOW_DEVICE");
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

/// Nothing if the process borrows no memory of the device, if there is no broker or no libcuda.so.1 of gpumem
/// beside this library, or if $GPUMEM_SHOW_DEVICE is 1: then the device's own figures hold.
std::optional<SliceFigures> slice_figures(nvmlDevice_t device) {
  if (shows_device()) return std::nullopt;
  const Figures figures = published_figures.get(find_figures);
  std::array<char, 96> text{};
  if (figures == nullptr || real_uuid(device, text.data(), text.size()) != NVML_SUCCESS) return std::nullopt;
  const auto uuid = cuda::parse_device_uuid(text.data());
  SliceFigures slice;
  if (!uuid || !figures(uuid->bytes.data(), &slice.total, &slice.used, &slice.free)) return std::nullopt;
  // A program that subtracts one of them must not get a negative number. A total of zero is no answer.
  slice.used = std::min(slice.used, slice.total);
  slice.free = std::min(slice.free, slice.total);
  return slice.total > 0 ? std::optional(slice) : std::nullopt;
}

constinit RealCall<decltype(::nvmlDeviceGetMemoryInfo)> real_memory_info("nvmlDeviceGetMemoryInfo");

/// True if `memory` tells of a slice now.
template <class Memory>
bool show_slice(nvmlDevice_t device, Memory& memory) {
  const auto slice = slice_figures(device);
  if (!slice) return false;
  memory.total = slice->total;
  memory.used = slice->total - slice->free;
  memory.free = slice->free;
  return true;
}

}  // namespace

// The errors of NVML's users for a library that cannot be opened, and of NVML for a function that it lacks.
constinit const OwnLibrary kOwnLibrary{.file = "libnvidia-ml.so.1",
                                       .without_driver = NVML_ERROR_LIBRARY_NOT_FOUND,
                                       .without_call = NVML_ERROR_FUNCTION_NOT_FOUND,
                                       .in_words = "nvmlErrorString",
                                       .words = &error_string};

nvmlReturn_t calls::nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  const nvmlReturn_t result = real_memory_info(device, memory);
  if (result == NVML_SUCCESS) show_slice(device, *memory);
  return result;
}

#ifdef nvmlMemory_v2
namespace {
constinit RealCall<decltype(::nvmlDeviceGetMemoryInfo_v2)> real_memory_info_v2("nvmlDeviceGetMemoryInfo_v2");
}  // namespace

nvmlReturn_t calls::nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  const nvmlReturn_t result = real_memory_info_v2(device, memory);
  // Reserved memory belongs to the device and is no part of a slice.
  if (result == NVML_SUCCESS && show_slice(device, *memory)) memory->reserved = 0;
  return result;
}
#endif

// The list of the processes that compute on a device: in a slice, without the broker, which has created the
// memory that processes borrow, and with the usage of the slice by this process.
#if NVML_API_VERSION >= 12
namespace {

constinit RealCall<decltype(::nvmlDeviceGetComputeRunningProcesses)> real_processes(
    "nvmlDeviceGetComputeRunningProcesses");
constinit RealCall<decltype(::nvmlDeviceGetComputeRunningProcesses_v2)> real_processes_v2(
    "nvmlDeviceGetComputeRunningProcesses_v2");
constinit RealCall<decltype(::nvmlDeviceGetComputeRunningProcesses_v3)> real_processes_v3(
    "nvmlDeviceGetComputeRunningProcesses_v3");

constexpr unsigned kRoomForMore = 8;  // processes that come meanwhile

/// By its name: its socket may be systemd's. A container does not see it, and its driver does not list it.
bool is_broker(unsigned pid) {
  const UniqueFd file(::open(("/proc/" + std::to_string(pid) + "/comm").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 16> name{};
  const ssize_t length = file.valid() ? ::read(file.get(), name.data(), name.size()) : 0;
  return length > 0 && std::string_view(name.data(), static_cast<std::size_t>(length)) == "gpumemd\n";
}

template <class Real, class Info>
nvmlReturn_t read_all(Real& real, nvmlDevice_t device, std::vector<Info>& all) {
  unsigned count = 0;
  nvmlReturn_t result = real(device, &count, nullptr);
  while (result == NVML_ERROR_INSUFFICIENT_SIZE) {
    count += kRoomForMore;
    all.resize(count);
    result = real(device, &count, all.data());
  }
  all.resize(result == NVML_SUCCESS ? std::min<std::size_t>(count, all.size()) : 0);
  return result;
}

template <class Real, class Info>
nvmlReturn_t list_processes(Real& real, nvmlDevice_t device, unsigned* count, Info* infos) {
  const auto slice = count != nullptr ? slice_figures(device) : std::nullopt;
  if (!slice) return real(device, count, infos);
  std::vector<Info> all;
  const nvmlReturn_t result = read_all(real, device, all);
  if (result != NVML_SUCCESS) return result;
  std::erase_if(all, [](const Info& one) { return is_broker(one.pid); });
  for (Info& one : all)
    if (one.pid == static_cast<unsigned>(::getpid())) one.usedGpuMemory = slice->used;
  const unsigned room = std::exchange(*count, static_cast<unsigned>(all.size()));
  if (room < all.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (!all.empty() && infos == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  std::ranges::copy(all, infos);
  return NVML_SUCCESS;
}

}  // namespace

nvmlReturn_t calls::nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int* infoCount,
                                                         nvmlProcessInfo_v1_t* infos) {
  return list_processes(real_processes, device, infoCount, infos);
}
nvmlReturn_t calls::nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* infoCount,
                                                            nvmlProcessInfo_v2_t* infos) {
  return list_processes(real_processes_v2, device, infoCount, infos);
}
nvmlReturn_t calls::nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* infoCount,
                                                            nvmlProcessInfo_t* infos) {
  return list_processes(real_processes_v3, device, infoCount, infos);
}
#endif

}  // namespace gpumem::shim
