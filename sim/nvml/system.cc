// libnvidia-ml.so.1 as a whole: start and end, versions, errors, processes by name.
#include <nvml.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>

#include "nvml_calls.h"
#include "sim/control/result_names.h"
#include "sim/exports/gate.h"
#include "sim/machine/device_model.h"
#include "sim/machine/machine.h"
#include "sim/nvml/call.h"

namespace gpumem::sim {
namespace {

std::string first_word_of(const std::string& path, char end) {
  std::ifstream file(path);
  std::string word;
  std::getline(file, word, end);
  return word;
}

/// The path that process `pid` was started by; its short name where it has none; empty if there is no such
/// one.
std::string name_of(unsigned pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  std::string name = first_word_of(folder + "/cmdline", '\0');
  return name.empty() ? first_word_of(folder + "/comm", '\n') : name;
}

}  // namespace

Nvml& Nvml::get() {
  static auto* const nvml = new Nvml();
  return *nvml;
}

nvmlReturn_t put(std::string_view text, char* out, unsigned length) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (length <= text.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(out, text.data(), text.size());
  out[text.size()] = '\0';
  return NVML_SUCCESS;
}

nvmlReturn_t api::nvmlInitWithFlags(unsigned int /*flags*/) {
  Nvml& nvml = Nvml::get();
  const std::lock_guard lock(nvml.mutex);
  if (nvml.users == 0) {
    const auto machine = locate_machine();
    if (!machine) return NVML_ERROR_DRIVER_NOT_LOADED;
    auto opened = Table::open(*machine);
    if (!opened) return NVML_ERROR_DRIVER_NOT_LOADED;
    Gate::attach(*machine);
    nvml.table = std::move(*opened);
  }
  ++nvml.users;
  return NVML_SUCCESS;
}
nvmlReturn_t api::nvmlInit_v2() { return api::nvmlInitWithFlags(0); }
nvmlReturn_t api::nvmlInit() { return api::nvmlInitWithFlags(0); }

nvmlReturn_t api::nvmlShutdown() {
  Nvml& nvml = Nvml::get();
  const std::lock_guard lock(nvml.mutex);
  if (nvml.users == 0) return NVML_ERROR_UNINITIALIZED;
  if (--nvml.users == 0) nvml.table.reset();
  return NVML_SUCCESS;
}

nvmlReturn_t api::nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  const NvmlCall nvml;
  return nvml ? put(device_model::kDriverVersion, version, length) : nvml.error();
}

#ifdef HAVE_nvmlSystemGetDriverBranch
/// `length`  of the text at most, with its zero.
nvmlReturn_t api::nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t* info, unsigned int length) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (info->version != nvmlSystemDriverBranchInfo_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  return put(device_model::kDriverBranch, info->branch, std::min<unsigned>(length, sizeof info->branch));
}
#endif

// These two are known to the library itself, so they are told without nvmlInit as well.
nvmlReturn_t api::nvmlSystemGetNVMLVersion(char* version, unsigned int length) {
  return put(device_model::kNvmlVersion, version, length);
}
nvmlReturn_t api::nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (version == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *version = device_model::kCudaVersion;
  return NVML_SUCCESS;
}
nvmlReturn_t api::nvmlSystemGetCudaDriverVersion(int* version) {
  return api::nvmlSystemGetCudaDriverVersion_v2(version);
}

/// A name that is too long is cut off.
nvmlReturn_t api::nvmlSystemGetProcessName(unsigned int pid, char* name, unsigned int length) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (name == nullptr || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
  const std::string found = name_of(pid);
  return found.empty() ? NVML_ERROR_NOT_FOUND : put(found.substr(0, length - 1), name, length);
}

/// Units are enclosures of old; there is none.
nvmlReturn_t api::nvmlUnitGetCount(unsigned int* count) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

}  // namespace gpumem::sim

/// Gives no result, so it passes no gate.
extern "C" const char* nvmlErrorString(nvmlReturn_t result) {
  for (const gpumem::sim::ResultName& known : gpumem::sim::nvml_results()) {
    if (known.number == static_cast<int>(result)) return known.text;
  }
  return "Unknown Error";
}
