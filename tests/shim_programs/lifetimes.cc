// How programs begin and end.
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/shim_programs/program.h"

namespace gpumem::shim_programs {
namespace {

void use_memory() {
  CUdeviceptr at = 0;
  OK(cuMemAlloc(&at, 3 * kMiB));
  byte_at(at) = 1;
  OK(cuMemFree(at));
}

/// As libraries that start the driver before main(), if the environment says so.
struct Early {
  CUresult started = CUDA_ERROR_NOT_INITIALIZED;
  CUdeviceptr at = 0;
  Early() {
    if (std::getenv("SHIM_PROGRAM_STARTS_EARLY") == nullptr) return;
    started = cuInit(0);
    CUcontext context = nullptr;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&at, kMiB));
  }
  ~Early() {
    if (at != 0) OK(cuMemFree(at));
  }
};
Early early;

std::atomic<bool> allocates{false};

/// A thread that allocates and frees until the process ends.
void allocate_for_ever() {
  CUcontext context = nullptr;
  OK(cuCtxGetCurrent(&context));
  std::thread([context] {
    if (cuCtxSetCurrent(context) != CUDA_SUCCESS) return;
    // The results of calls while the process ends do not matter, but the process must end.
    for (std::uint64_t size = kMiB;; size = size * 5 % (7 * kMiB) + 1) {
      CUdeviceptr block = 0;
      if (cuMemAlloc(&block, size) == CUDA_SUCCESS) (void)cuMemFree(block);
      if (cuMemAllocAsync(&block, size, CU_STREAM_PER_THREAD) == CUDA_SUCCESS)
        (void)cuMemFreeAsync(block, CU_STREAM_PER_THREAD);
      allocates.store(true);
      allocates.notify_all();
    }
  }).detach();
}

}  // namespace

// A static object has started the driver, and frees in its destructor.
TASK(starts_early) {
  MUST(early.started == CUDA_SUCCESS && early.at != 0);
  use_memory();
}

// Handlers that come after the driver run before its own.
TASK(uses_memory_at_exit) {
  static CUdeviceptr at = 0;
  start();
  OK(cuMemAlloc(&at, 3 * kMiB));
  byte_at(at) = 4;
  MUST(std::atexit([] {
         MUST(byte_at(at) == 4);
         OK(cuMemFree(at));
         use_memory();
       }) == 0);
}

// Handlers that were there before it find a driver that has ended; what it answers then is not promised.
TASK(frees_when_the_driver_has_ended) {
  static CUdeviceptr at = 0, ordered = 0;
  MUST(std::atexit([] {
         (void)cuMemFree(at);
         (void)cuMemFreeAsync(ordered, nullptr);
         CUdeviceptr more = 0;
         (void)cuMemAlloc(&more, kMiB);
         (void)cuMemGetInfo(nullptr, nullptr);
       }) == 0);
  start();
  OK(cuMemAlloc(&at, 3 * kMiB));
  OK(cuMemAllocAsync(&ordered, 3 * kMiB, nullptr));
}

TASK(exits_while_threads_allocate) {
  start();
  for (int i = 0; i < 4; ++i) allocate_for_ever();
  allocates.wait(false);
}

// As a scheduler of fibres does: the first use of everything, on a stack of 16 KiB.
void use_everything() {
  const CUcontext primary = start();
  use_memory();
  CUdeviceptr at = 0;
  OK(cuMemAllocManaged(&at, kMiB, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemFree(at));
  OK(cuMemAllocAsync(&at, 5 * kMiB, nullptr));
  OK(cuMemFreeAsync(at, nullptr));
  ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&at, 100 * kGiB));
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  int fd = -1;
  OK(cuMemCreate(&handle, 2 * kMiB, &wanted, 0));
  OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  MUST(::close(fd) == 0);
  OK(cuMemRelease(handle));
  CUcontext other = nullptr;
  OK(new_context(&other));
  OK(cuMemAlloc(&at, 3 * kMiB));
  OK(cuCtxDestroy(other));
  OK(cuCtxSetCurrent(primary));
}
TASK(starts_on_a_small_stack) {
  static ucontext_t main_program, fibre;
  constexpr std::size_t kStack = 16 << 10, kGuard = 4 << 10;  // a call that needs more faults
  void* const memory =
      ::mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  MUST(memory != MAP_FAILED && ::mprotect(memory, kGuard, PROT_NONE) == 0);
  MUST(::getcontext(&fibre) == 0);
  fibre.uc_stack.ss_sp = static_cast<char*>(memory) + kGuard;
  fibre.uc_stack.ss_size = kStack;
  fibre.uc_link = &main_program;
  ::makecontext(&fibre, use_everything, 0);
  MUST(::swapcontext(&main_program, &fibre) == 0);
}

// The smallest stack of a thread holds its thread-local variables, too.
TASK(uses_the_smallest_stack_of_a_thread) {
  pthread_attr_t smallest;
  pthread_t thread;
  MUST(::pthread_attr_init(&smallest) == 0);
  MUST(::pthread_attr_setstacksize(&smallest, static_cast<std::size_t>(PTHREAD_STACK_MIN)) == 0);
  const auto use = [](void*) -> void* { return use_everything(), nullptr; };
  MUST(::pthread_create(&thread, &smallest, use, nullptr) == 0 && ::pthread_join(thread, nullptr) == 0);
}

// The process ends with its last thread, not with main().
TASK(ends_its_main_thread) {
  static CUcontext context = start();
  static const pthread_t main_thread = ::pthread_self();
  std::thread([] {
    MUST(::pthread_join(main_thread, nullptr) == 0);
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 100; ++i) use_memory();
    std::exit(0);
  }).detach();
  ::pthread_exit(nullptr);
}

// The program becomes another one, which is the same process to the kernel.
TASK(becomes_another) {
  start();
  CUdeviceptr at = 0;
  OK(cuMemAlloc(&at, 20 * kGiB));
  ::execl("/proc/self/exe", "another", "borrows_anew", nullptr);
  MUST(at == 0);  // exec does not come back
}
TASK(borrows_anew) {
  start();
  std::size_t free = 0, total = 0;
  OK(cuMemGetInfo(&free, &total));
  MUST(free == total);
  CUdeviceptr at = 0;
  OK(cuMemAlloc(&at, 20 * kGiB));
  OK(cuMemFree(at));
}

}  // namespace gpumem::shim_programs
