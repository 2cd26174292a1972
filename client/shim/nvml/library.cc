// The shim as libnvidia-ml.so.1.
#include <nvml.h>

#include "client/shim/own_library.h"

namespace gpumem::shim {
namespace {

const char* error_string(int result) {
  return result == NVML_SUCCESS ? "Success" : "NVML Shared Library Not Found";
}

}  // namespace

// What NVML's users report where they cannot open the library, and what NVML calls a function that it lacks.
constinit const OwnLibrary kOwnLibrary{.file = "libnvidia-ml.so.1",
                                       .without_driver = NVML_ERROR_LIBRARY_NOT_FOUND,
                                       .without_call = NVML_ERROR_FUNCTION_NOT_FOUND,
                                       .in_words = "nvmlErrorString",
                                       .words = &error_string};

}  // namespace gpumem::shim
