#include "client/shim/system_mode.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "base/system/system_mode.h"

namespace gpumem::shim {

bool is_system_mode() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&is_system_mode), &self) == 0) return false;
  return system_mode::is_system_folder(std::filesystem::path(self.dli_fname).parent_path()) &&
         ::secure_getenv("GPUMEM_JOB") == nullptr;
}

}  // namespace gpumem::shim
