// The processes that use a device, without the broker, which has created the memory that others borrow. A
// process that borrows is listed with what the broker says that it has; of others the driver's figure holds.
#include <algorithm>
#include <utility>
#include <vector>

#include "client/shim/nvml/calls.h"
#include "client/shim/nvml/device_view.h"
#include "client/shim/real.h"

#if NVML_API_VERSION >= 12
namespace gpumem::shim {
namespace {

constexpr unsigned kRoomForMore = 8;  // processes that come meanwhile

/// `ask`  asks the driver for its list: as the calls of NVML, of a count and room for so many.
template <class Info, class Ask>
nvmlReturn_t read_all(const Ask& ask, std::vector<Info>& all) {
  unsigned count = 0;
  nvmlReturn_t result = ask(&count, static_cast<Info*>(nullptr));
  while (result == NVML_ERROR_INSUFFICIENT_SIZE) {
    count += kRoomForMore;
    all.resize(count);
    result = ask(&count, all.data());
  }
  all.resize(result == NVML_SUCCESS ? std::min<std::size_t>(count, all.size()) : 0);
  return result;
}

template <class Info, class Ask>
nvmlReturn_t list(nvmlDevice_t device, const Ask& ask, unsigned* count, Info* infos) {
  const auto view = count != nullptr ? DeviceView::of(device) : DeviceView();
  if (!view.slice && !view.listing) return ask(count, infos);
  std::vector<Info> all;
  const nvmlReturn_t result = read_all(ask, all);
  if (result != NVML_SUCCESS) return result;
  std::erase_if(all, [&](const Info& one) { return view.is_broker(one.pid); });
  for (Info& one : all) one.usedGpuMemory = view.used_by(one.pid).value_or(one.usedGpuMemory);
  const unsigned room = std::exchange(*count, static_cast<unsigned>(all.size()));
  if (room < all.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (!all.empty() && infos == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  std::ranges::copy(all, infos);
  return NVML_SUCCESS;
}

}  // namespace

#define GPUMEM_SHIM_LIST(name, Info)                                                                      \
  namespace {                                                                                             \
  constinit RealCall<decltype(::name)> real_##name(#name);                                                \
  }                                                                                                       \
  nvmlReturn_t calls::name(nvmlDevice_t device, unsigned* count, Info* infos) {                           \
    return list(                                                                                          \
        device, [=](unsigned* room, Info* all) { return real_##name(device, room, all); }, count, infos); \
  }
GPUMEM_SHIM_LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
GPUMEM_SHIM_LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
GPUMEM_SHIM_LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t)
GPUMEM_SHIM_LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
GPUMEM_SHIM_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
GPUMEM_SHIM_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
GPUMEM_SHIM_LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
GPUMEM_SHIM_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
GPUMEM_SHIM_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)
#undef GPUMEM_SHIM_LIST

#ifdef nvmlProcessDetailList_v1
namespace {
constinit RealCall<decltype(::nvmlDeviceGetRunningProcessDetailList)> real_details(
    "nvmlDeviceGetRunningProcessDetailList");
}  // namespace

nvmlReturn_t calls::nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                          nvmlProcessDetailList_t* details) {
  if (details == nullptr || details->version != nvmlProcessDetailList_v1)
    return real_details(device, details);
  const auto ask = [&](unsigned* room, nvmlProcessDetail_v1_t* all) {
    nvmlProcessDetailList_t asked{*details};
    asked.numProcArrayEntries = *room;
    asked.procArray = all;
    const nvmlReturn_t result = real_details(device, &asked);
    *room = asked.numProcArrayEntries;
    return result;
  };
  return list(device, ask, &details->numProcArrayEntries, details->procArray);
}
#endif

}  // namespace gpumem::shim
#endif
