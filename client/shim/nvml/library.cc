// What the shim is as libnvidia-ml.so.1.
#include <nvml.h>

#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

const char* error_string(int result) {
  return result == NVML_SUCCESS ? "Success" : "NVML Shared Library Not Found";
}

}  // namespace

// The errors of NVML's users for a library that cannot be opened, and of NVML for a function that it lacks.
constinit const OwnLibrary kOwnLibrary{.file = "libnvidia-ml.so.1",
                                       .without_driver = NVML_ERROR_LIBRARY_NOT_FOUND,
                                       .without_call = NVML_ERROR_FUNCTION_NOT_FOUND,
                                       .in_words = "nvmlErrorString",
                                       .words = &error_string};

}  // namespace gpumem::shim
