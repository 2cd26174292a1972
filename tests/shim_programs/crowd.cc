// A program of many on one device: it allocates and frees in every way, forks, and has threads that end while
// their streams have work.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/shim_programs/program.h"

namespace gpumem::shim_programs {
namespace {

using Random = std::mt19937;

std::uint64_t size_of(Random& random) { return 1 + random() % (8 * kMiB); }

/// Whether there was memory. Any other answer is a fault.
bool is_there(CUresult result) {
  MUST(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
  return result == CUDA_SUCCESS;
}

void use_blocks(Random& random) {
  std::vector<CUdeviceptr> blocks(1 + random() % 6);
  for (CUdeviceptr& block : blocks)
    if (is_there(cuMemAlloc(&block, size_of(random)))) byte_at(block) = 1;
  std::size_t free = 0, total = 0;
  OK(cuMemGetInfo(&free, &total));
  MUST(free <= total);
  for (const CUdeviceptr block : blocks)
    if (block != 0) OK(cuMemFree(block));
}

void use_stream(Random& random) {
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 4; ++i) {
    CUdeviceptr block = 0;
    if (!is_there(cuMemAllocAsync(&block, size_of(random), stream))) continue;
    OK(cuMemsetD8Async(block, 2, 1, stream));
    OK(cuMemFreeAsync(block, stream));
  }
  OK(cuStreamDestroy(stream));  // its work may be under way
}

// The thread's default stream ends with it.
void use_thread(Random& random) {
  CUcontext context = nullptr;
  OK(cuCtxGetCurrent(&context));
  const std::uint64_t size = size_of(random);
  std::thread([context, size] {
    OK(cuCtxSetCurrent(context));
    CUdeviceptr blocks[2] = {};
    for (CUdeviceptr& block : blocks) {
      if (!is_there(cuMemAllocAsync(&block, size, CU_STREAM_PER_THREAD))) continue;
      OK(cuMemsetD8Async(block, 3, 1, CU_STREAM_PER_THREAD));
    }
    for (const CUdeviceptr block : blocks)
      if (block != 0) OK(cuMemFreeAsync(block, CU_STREAM_PER_THREAD));
  }).join();
}

void use_handle(Random& random) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const std::uint64_t size = (1 + random() % 5) * 2 * kMiB;
  CUmemGenericAllocationHandle handle = 0;
  if (!is_there(cuMemCreate(&handle, size, &wanted, 0))) return;
  CUdeviceptr at = 0;
  OK(cuMemAddressReserve(&at, size, 0, 0, 0));
  OK(cuMemMap(at, size, 0, handle, 0));
  OK(cuMemRelease(handle));
  OK(cuMemUnmap(at, size));
  OK(cuMemAddressFree(at, size));
}

/// Three threads that use memory until they are told to end.
class Users {
 public:
  explicit Users(CUcontext context) {
    for (unsigned seed = 1; seed <= 3; ++seed)
      threads_.emplace_back([this, context, seed] { use(context, seed); });
  }
  /// Nothing is in use then.
  void end() {
    ends_ = true;
    for (std::thread& thread : threads_) thread.join();
    std::size_t free = 0, total = 0;
    OK(cuMemGetInfo(&free, &total));
    MUST(free == total);
  }

 private:
  void use(CUcontext context, unsigned seed) {
    OK(cuCtxSetCurrent(context));
    Random random(seed);
    void (*const uses[])(Random&) = {use_blocks, use_stream, use_handle};
    while (!ends_) uses[random() % 3](random);
  }

  std::atomic<bool> ends_{false};
  std::vector<std::thread> threads_;
};

// A child cannot use its parent's driver, and must not harm it.
void use_child(Random&) {
  const pid_t child = ::fork();
  if (child == 0) {
    CUdeviceptr block = 0;
    const bool is_refused = cuMemAlloc(&block, kMiB) != CUDA_SUCCESS && cuMemFree(1 << 20) != CUDA_SUCCESS &&
                            cuMemAllocAsync(&block, kMiB, nullptr) != CUDA_SUCCESS;
    ::_exit(is_refused ? 0 : 1);
  }
  int status = -1;
  MUST(child > 0 && ::waitpid(child, &status, 0) == child);
  MUST(status == 0);
}

}  // namespace

// threads FILE: three threads use memory, and the main one in steps with the test, until there is the file.
TASK(threads) {
  const CUcontext context = start();
  Users users(context);
  Random random(0);
  do {
    use_blocks(random);
    tell_and_await_test();
  } while (!std::filesystem::exists(arguments[0]));
  users.end();
}

// threads_and_children COUNT: children are forked while other threads may hold any lock.
TASK(threads_and_children) {
  Users users(start());
  Random random(0);
  for (unsigned left = static_cast<unsigned>(std::stoul(arguments[0])); left != 0; --left) use_child(random);
  users.end();
}

// crowd SEED ROUNDS: from the second half on, the test may kill it, or its broker.
TASK(crowd) {
  Random random(static_cast<unsigned>(std::stoul(arguments[0])));
  const unsigned rounds = static_cast<unsigned>(std::stoul(arguments[1]));
  start();
  std::vector<void (*)(Random&)> uses{use_blocks, use_stream, use_thread, use_handle};
#ifndef __SANITIZE_ADDRESS__  // its allocator may be locked in a child forked from several threads
  uses.push_back(use_child);
#endif
  CUdeviceptr kept = 0;
  MUST(is_there(cuMemAlloc(&kept, 4 * kMiB)));
  for (unsigned round = 0; round < rounds; ++round) {
    if (round == rounds / 2) tell_test();
    uses[random() % uses.size()](random);
  }
  byte_at(kept) = 9;
}

}  // namespace gpumem::shim_programs
