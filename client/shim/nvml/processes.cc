// NVML's list of the processes that compute on a device: in a slice, without the broker, which has created
// the memory that processes borrow, and with what this process itself uses of the slice.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "client/shim/nvml/calls.h"
#include "client/shim/nvml/slice_figures.h"
#include "client/shim/real.h"

#if NVML_API_VERSION >= 12
namespace gpumem::shim {
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

}  // namespace gpumem::shim
#endif
