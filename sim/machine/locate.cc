#include "sim/machine/locate.h"

#include <dlfcn.h>

#include <cstdlib>

namespace gpumem::sim {

Result<Machine> locate_machine() {
  std::filesystem::path folder;
  if (const char* named = std::getenv("GPUMEM_SIM_MACHINE"); named != nullptr && *named != '\0') {
    folder = named;
  } else {
    Dl_info self{};
    static const char anchor = 0;  // lies in this library; its path is the one it was found by, links and all
    if (::dladdr(&anchor, &self) != 0 && self.dli_fname != nullptr) {
      folder = std::filesystem::path(self.dli_fname).parent_path();
    }
  }
  auto machine = load_machine(folder);
  if (machine || machine.error().code != Code::kNotFound) return machine;
  return Error{Code::kNotFound, machine.error().message +
                                    "; make one with `gpumem-sim create FOLDER 1x24GiB`, then " +
                                    "set LD_LIBRARY_PATH or GPUMEM_SIM_MACHINE to FOLDER"};
}

}  // namespace gpumem::sim
