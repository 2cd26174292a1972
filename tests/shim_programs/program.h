#pragma once
#include <cuda.h>
#include <dlfcn.h>

#include <cstdint>

#include "tests/support/steps.h"

namespace gpumem::shim_programs {

using gpumem::test::await_test;
using gpumem::test::tell_and_await_test;
using gpumem::test::tell_test;

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

/// Something that the program can be told to do, by its first argument. The other arguments are `arguments`.
class Task {
 public:
  using Body = void (*)();
  Task(const char* name, Body body);
};
extern char** arguments;

/// Defines a task: TASK(name) { ... }
#define TASK(name)                                                    \
  void task_##name();                                                 \
  const gpumem::shim_programs::Task kTask_##name(#name, task_##name); \
  void task_##name()

/// Ends the program with a message and status 1, from any thread.
[[noreturn]] void fail(const char* file, int line, const char* what, long long value);
/// As assertions of frameworks: what is not so is the program's end.
#define MUST(condition) \
  ((condition) ? void() : gpumem::shim_programs::fail(__FILE__, __LINE__, "not so: " #condition, 0))
#define OK(call) gpumem::shim_programs::check(__FILE__, __LINE__, #call, call, CUDA_SUCCESS)
#define ANSWERS(expected, call) gpumem::shim_programs::check(__FILE__, __LINE__, #call, call, expected)
inline void check(const char* file, int line, const char* what, CUresult result, CUresult expected) {
  if (result != expected) fail(file, line, what, result);
}

// The three ways in which programs reach the driver. Linked: cuMemAlloc(...), as the header has it.
/// By dlopen and dlsym of the exported name: BY_NAME(cuMemAlloc)(&at, size).
#define GPUMEM_TEXT_OF(text) #text
#define GPUMEM_EXPANDED(text) GPUMEM_TEXT_OF(text)
#define BY_NAME(call) gpumem::shim_programs::by_name<decltype(&::call)>(GPUMEM_EXPANDED(call))
/// By cuGetProcAddress, of version 12.0, as the CUDA runtime:
/// by_entry_point<decltype(&::cuMemAlloc)>("cuMemAlloc").
template <class Function>
Function by_entry_point(const char* name);

void* find_by_name(const char* name);
void* find_entry_point(const char* name);
template <class Function>
Function by_name(const char* name) {
  return reinterpret_cast<Function>(find_by_name(name));
}
template <class Function>
Function by_entry_point(const char* name) {
  return reinterpret_cast<Function>(find_entry_point(name));
}

/// cuInit, and the first device's primary context.
CUcontext start();
/// Another context of it, in the form that all versions of the header know; current.
inline CUresult new_context(CUcontext* made) {
  return by_name<CUresult (*)(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(made, 0, 0);
}

/// One byte of device memory, which the simulated driver lets the host touch.
inline volatile unsigned char& byte_at(CUdeviceptr at) {
  return *reinterpret_cast<volatile unsigned char*>(at);
}

}  // namespace gpumem::shim_programs
