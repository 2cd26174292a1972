extern "C" {
/// The version of gpumem that the shim is part of. By this name a library is known to be a shim and no
/// driver.
const char* gpumem_shim_version();
}

const char* gpumem_shim_version() { return GPUMEM_SHIM_VERSION; }
