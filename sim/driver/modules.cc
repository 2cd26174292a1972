#include "sim/driver/modules.h"

#include "sim/driver/driver.h"
#include "sim/machine/device_model.h"

namespace gpumem::sim {
namespace {

constexpr std::uint64_t kVariablesPage = 65536;
constexpr unsigned kArchitecture = device_model::kComputeMajor * 10 + device_model::kComputeMinor;

}  // namespace

CUresult Modules::load(std::uint64_t context, const ReadImage& image, bool is_library, std::uint64_t* out) {
  if (form_of(image) == CodeForm::kText) return CUDA_ERROR_NOT_SUPPORTED;
  Module made{.context = context, .is_library = is_library};
  const std::uint64_t size = variables_of(image, kArchitecture).count;
  const int ordinal = driver_.contexts.find(handle<CUcontext>(context))->ordinal;
  if (size != 0) {
    const auto pages = Bytes{size}.rounded_up(Bytes{kVariablesPage});
    if (!pages) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult taken = driver_.create_extent(
        {.device = driver_.device(ordinal), .kind = Kind::kMemory, .size = pages->count, .handle_types = 0},
        &made.memory);
    if (taken != CUDA_SUCCESS) return taken;
  }
  made.number = last_ += 16;
  *out = made.number;
  modules_.emplace(made.number, made);
  return CUDA_SUCCESS;
}

Module* Modules::find(std::uint64_t number, bool is_library) {
  const auto found = modules_.find(number);
  return found != modules_.end() && found->second.is_library == is_library ? &found->second : nullptr;
}

void Modules::free(Module& module) {
  if (module.memory == nullptr) return;
  module.memory->handles = 0;
  driver_.handles->drop_if_unused(*module.memory);
  module.memory = nullptr;
}

void Modules::unload(Module& module) {
  free(module);
  modules_.erase(module.number);
}

void Modules::end_all_of(std::uint64_t context) {
  for (auto it = modules_.begin(); it != modules_.end();) {
    Module& module = (it++)->second;
    if (module.context != context) continue;
    if (module.is_library)
      free(module);
    else
      unload(module);
  }
}

}  // namespace gpumem::sim
