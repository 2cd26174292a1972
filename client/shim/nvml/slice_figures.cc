#include "client/shim/nvml/slice_figures.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "client/shim/figures.h"
#include "client/shim/published.h"
#include "client/shim/real.h"
#include "cuda/uuid.h"

namespace gpumem::shim {
namespace {

using Figures = decltype(&::gpumem_shim_figures);

constinit RealCall<decltype(::nvmlDeviceGetUUID)> real_uuid("nvmlDeviceGetUUID");

bool shows_device() {
  const char* const value = std::getenv("GPUMEM_SHOW_DEVICE");
  return value != nullptr && std::string_view(value) == "1";
}

/// The shim libcuda.so.1 knows what is lent. A driver in its place does not have the function.
Figures find_figures() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&find_figures), &self) == 0) return nullptr;
  const auto beside = std::filesystem::path(self.dli_fname).parent_path() / "libcuda.so.1";
  void* const library = ::dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
  return library != nullptr ? reinterpret_cast<Figures>(::dlsym(library, "gpumem_shim_figures")) : nullptr;
}

constinit Published<Figures> published_figures;

}  // namespace

std::optional<SliceFigures> slice_figures(nvmlDevice_t device) {
  if (shows_device()) return std::nullopt;
  const Figures figures = published_figures.get(find_figures);
  std::array<char, 96> text{};
  if (figures == nullptr || real_uuid(device, text.data(), text.size()) != NVML_SUCCESS) return std::nullopt;
  const auto uuid = cuda::parse_device_uuid(text.data());
  SliceFigures slice;
  if (!uuid || !figures(uuid->bytes.data(), &slice.total, &slice.used)) return std::nullopt;
  // A program that subtracts the two must not get a negative number. A total of zero is no answer.
  slice.used = std::min(slice.used, slice.total);
  return slice.total > 0 ? std::optional(slice) : std::nullopt;
}

}  // namespace gpumem::shim
