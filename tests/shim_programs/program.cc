// The program that knows nothing of gpumem: it does what its first argument says.
#include "tests/shim_programs/program.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace gpumem::shim_programs {
namespace {

std::map<std::string, Task::Body>& tasks() {
  static auto* const kTasks = new std::map<std::string, Task::Body>;
  return *kTasks;
}

}  // namespace

char** arguments = nullptr;

Task::Task(const char* name, Body body) { tasks()[name] = body; }

void fail(const char* file, int line, const char* what, long long value) {
  std::fprintf(stderr, "%s:%d: %s (%lld)\n", file, line, what, value);
  std::_Exit(1);
}

void* find_by_name(const char* name) {
  static void* const kLibrary = ::dlopen("libcuda.so.1", RTLD_NOW);
  void* const found = kLibrary != nullptr ? ::dlsym(kLibrary, name) : nullptr;
  if (found == nullptr) fail(__FILE__, __LINE__, name, 0);
  return found;
}

void* find_entry_point(const char* name) {
  constexpr int kVersion = 12000;
  static const auto kLookUp = by_name<decltype(&::cuGetProcAddress_v2)>("cuGetProcAddress_v2");
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  const CUresult result = kLookUp(name, &found, kVersion, CU_GET_PROC_ADDRESS_DEFAULT, &status);
  if (result != CUDA_SUCCESS || found == nullptr) fail(__FILE__, __LINE__, name, result);
  return found;
}

CUcontext start() {
  OK(cuInit(0));
  CUcontext context = nullptr;
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  return context;
}

}  // namespace gpumem::shim_programs

int main(int argc, char** argv) {
  using namespace gpumem::shim_programs;
  const auto found = argc > 1 ? tasks().find(argv[1]) : tasks().end();
  if (found == tasks().end()) return 2;
  arguments = argv + 2;
  found->second();
  return 0;
}
