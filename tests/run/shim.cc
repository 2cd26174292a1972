// A library that looks like the drop-in driver: it stands where `gpumem run` and `gpumem check` look for it.
extern "C" __attribute__((visibility("default"))) const char* gpumem_shim_version() { return "test"; }
