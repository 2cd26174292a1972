// A library that says of itself that it is a shim, and would be a driver but for that.
extern "C" {
const char* gpumem_shim_version() { return "another"; }
int cuInit(unsigned /*flags*/) { return 999; }
int cuDriverGetVersion(int* version) { return *version = 0; }
}
