// A libnvidia-ml.so.1 whose device has 1000 bytes: 900 are used, 10 reserved. Each process that
// $SHIM_TEST_PIDS names is in every list, with 7 bytes.
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

std::vector<unsigned> pids() {
  const char* const text = std::getenv("SHIM_TEST_PIDS");
  std::istringstream words(text != nullptr ? text : "");
  std::vector<unsigned> read;
  for (unsigned pid = 0; words >> pid;) read.push_back(pid);
  return read;
}

template <class Info>
nvmlReturn_t list(unsigned* count, Info* infos) {
  const std::vector<unsigned> all = pids();
  const unsigned room = std::exchange(*count, static_cast<unsigned>(all.size()));
  if (room < all.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (infos == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (const unsigned pid : all) {
    infos->pid = pid;
    infos->usedGpuMemory = 7;
    ++infos;
  }
  return NVML_SUCCESS;
}

}  // namespace

extern "C" {
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned, nvmlDevice_t* device) {
  *device = reinterpret_cast<nvmlDevice_t>(1);  // NOLINT(performance-no-int-to-ptr): a name
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t, char* text, unsigned length) {
  std::string("GPU-00000000-0000-0000-0000-000000000001").copy(text, length - 1);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t* memory) {
  *memory = {.total = 1000, .free = 90, .used = 910};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t, nvmlMemory_v2_t* memory) {
  *memory = {.version = memory->version, .total = 1000, .reserved = 10, .free = 90, .used = 900};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t, unsigned* count,
                                                  nvmlProcessInfo_v1_t* infos) {
  return list(count, infos);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t, unsigned* count,
                                                     nvmlProcessInfo_v2_t* infos) {
  return list(count, infos);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t, unsigned* count,
                                                     nvmlProcessInfo_t* infos) {
  return list(count, infos);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t, unsigned* count,
                                                      nvmlProcessInfo_t* infos) {
  return list(count, infos);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t, unsigned* count,
                                                        nvmlProcessInfo_t* infos) {
  return list(count, infos);
}
nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t, nvmlProcessDetailList_t* details) {
  return list(&details->numProcArrayEntries, details->procArray);
}
/// As the real one, it is in no header.
nvmlReturn_t nvmlInternalGetExportTable(const void**, const void*) { return NVML_ERROR_IN_USE; }
}
