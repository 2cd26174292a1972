#include "client/shim/version.h"

const char* gpumem_shim_version() { return GPUMEM_SHIM_VERSION; }
