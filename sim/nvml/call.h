#pragma once
#include <nvml.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <type_traits>

#include "sim/machine/table.h"

namespace gpumem::sim {

/// The management library as one process has it: the machine's table between nvmlInit and nvmlShutdown.
/// Never destroyed: other threads may be in it while the process ends.
struct Nvml {
  std::mutex mutex;
  unsigned users = 0;  ///< nvmlInit less nvmlShutdown
  std::unique_ptr<Table> table;

  static Nvml& get();
};

/// One call into the library: holds its lock. Usable between nvmlInit and nvmlShutdown.
///   NvmlCall nvml;
///   if (!nvml) return nvml.error();
class NvmlCall {
 public:
  NvmlCall() : lock_(Nvml::get().mutex) {}

  explicit operator bool() const { return Nvml::get().users > 0; }
  nvmlReturn_t error() const { return NVML_ERROR_UNINITIALIZED; }
  Table* operator->() const { return Nvml::get().table.get(); }

  /// Handles are numbers; any value may be asked for.
  bool has(nvmlDevice_t device) const { return index_of(device) < Nvml::get().table->device_count(); }
  /// The index in the machine.
  static std::uint32_t index_of(nvmlDevice_t device) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(device)) - 1;
  }
  static nvmlDevice_t handle_of(std::uint32_t index) {
    return reinterpret_cast<nvmlDevice_t>(static_cast<std::uintptr_t>(index) +
                                          1);  // NOLINT(performance-no-int-to-ptr)
  }

 private:
  std::lock_guard<std::mutex> lock_;
};

/// Copies `text` to `out`, which has room for `length` characters with the zero.
/// Errors  NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_INSUFFICIENT_SIZE.
nvmlReturn_t put(std::string_view text, char* out, unsigned length);

/// Checks what almost every call takes, then answers `ask(nvml, index)` as `*out`.
template <class Value, class Ask>
nvmlReturn_t answer(nvmlDevice_t device, Value* out, Ask ask) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (!nvml.has(device) || out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = ask(nvml, NvmlCall::index_of(device));
  return NVML_SUCCESS;
}

/// Answers with a constant that is equal for all devices.
template <class Value>
nvmlReturn_t answer_always(nvmlDevice_t device, Value* out, std::type_identity_t<Value> value) {
  return answer(device, out, [&](const NvmlCall&, std::uint32_t) { return value; });
}
template <class First, class Second>
nvmlReturn_t answer_always(nvmlDevice_t device, First* first, std::type_identity_t<First> value,
                           Second* second, std::type_identity_t<Second> other) {
  if (second == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const nvmlReturn_t result = answer_always(device, first, value);
  if (result == NVML_SUCCESS) *second = other;
  return result;
}

}  // namespace gpumem::sim
