// Programs whose broker ends under them, and another comes.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "tests/shim_programs/program.h"

namespace gpumem::shim_programs {
namespace {

using Handle = CUmemGenericAllocationHandle;

/// Memory of each kind that the shim borrows.
struct Memory {
  static constexpr std::uint64_t kBytes = 6 * kMiB;
  CUdeviceptr block = 0, ordered = 0, mapped = 0, managed = 0;
  Handle handle = 0;

  void take() {
    OK(cuMemAlloc(&block, kBytes));
    OK(cuMemAllocAsync(&ordered, kBytes, nullptr));
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    OK(cuMemCreate(&handle, kBytes, &wanted, 0));
    OK(cuMemAddressReserve(&mapped, kBytes, 0, 0, 0));
    OK(cuMemMap(mapped, kBytes, 0, handle, 0));
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemSetAccess(mapped, kBytes, &access, 1));
    OK(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  }
  void fill(unsigned char value) {
    for (const CUdeviceptr at : {block, ordered, mapped, managed}) OK(cuMemsetD8(at, value, kBytes));
  }
  void check(unsigned char value) {
    for (const CUdeviceptr at : {block, ordered, mapped, managed})
      MUST(byte_at(at) == value && byte_at(at + kBytes - 1) == value);
  }
  void free() {
    OK(cuMemFree(block));
    OK(cuMemFreeAsync(ordered, nullptr));
    OK(cuMemUnmap(mapped, kBytes));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(mapped, kBytes));
    OK(cuMemFree(managed));
  }
};

std::size_t free_bytes() {
  std::size_t free = 0;
  OK(cuMemGetInfo(&free, nullptr));
  return free;
}

}  // namespace

// goes_on TIMES: allocates, and frees what it had before; so often the test restarts the broker in between.
TASK(goes_on) {
  start();
  const std::size_t all = free_bytes();
  Memory before;
  before.take();
  before.fill(1);
  const int times = std::stoi(arguments[0]);
  for (int i = 1; i <= times; ++i) {
    tell_and_await_test();
    before.check(static_cast<unsigned char>(i));
    Memory now;
    now.take();
    now.fill(static_cast<unsigned char>(i + 1));
    before.check(static_cast<unsigned char>(i));
    MUST(all - free_bytes() == 8 * Memory::kBytes);
    before.free();
    now.check(static_cast<unsigned char>(i + 1));
    before = now;
  }
  before.free();
  MUST(free_bytes() == all);
  tell_and_await_test();
}

// frees_meanwhile: the test stops the broker while it has memory that the driver itself has allocated.
// Afterwards it does nothing.
TASK(frees_meanwhile) {
  start();
  CUdeviceptr one = 0, two = 0;
  OK(cuMemAllocManaged(&one, 16 * kMiB, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemAllocManaged(&two, 48 * kMiB, CU_MEM_ATTACH_GLOBAL));
  tell_and_await_test();
  OK(cuMemFree(one));
  OK(cuMemFree(two));
  tell_and_await_test();
}

// wants_meanwhile: the test stops the broker, which reads later what this one does not wait for any more.
TASK(wants_meanwhile) {
  start();
  CUdeviceptr none = 0, managed = 0;
  OK(cuMemAllocManaged(&managed, 4 * kMiB, CU_MEM_ATTACH_GLOBAL));
  tell_and_await_test();
  ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocManaged(&none, 64 * kMiB, CU_MEM_ATTACH_GLOBAL));
  tell_and_await_test();
}

// Its limit is 64 MiB, 24 MiB of which are of the session that the test ends.
TASK(keeps_its_limit) {
  start();
  Memory before;
  before.take();
  CUdeviceptr most = 0, more = 0;
  tell_and_await_test();
  MUST(free_bytes() == 40 * kMiB);
  ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, 42 * kMiB));
  OK(cuMemAlloc(&most, 40 * kMiB));
  ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, 2 * kMiB));
  before.free();
  OK(cuMemAlloc(&more, 24 * kMiB));
  tell_and_await_test();
}

// Its managed memory is the driver's own, and declared to the next broker, too.
TASK(declares_again) {
  start();
  CUdeviceptr managed = 0, block = 0;
  OK(cuMemAllocManaged(&managed, 600 * kMiB, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemAlloc(&block, kMiB));
  tell_and_await_test();
  OK(cuMemFree(block));
  OK(cuMemAlloc(&block, kMiB));
  tell_and_await_test();
  OK(cuMemFree(managed));
  tell_and_await_test();
}

// The program is refused while no broker is there, and gets memory again from the next one.
TASK(is_refused_meanwhile) {
  start();
  CUdeviceptr before = 0, meanwhile = 0, then = 0;
  CUipcMemHandle handle{};
  OK(cuMemAlloc(&before, 4 * kMiB));
  OK(cuIpcGetMemHandle(&handle, before));
  byte_at(before) = 3;
  tell_and_await_test();
  ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&meanwhile, kGiB));
  tell_and_await_test();
  OK(cuMemAlloc(&then, kGiB));
  OK(cuIpcGetMemHandle(&handle, then));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, before));
  MUST(byte_at(before) == 3);
  OK(cuMemFree(before));
  OK(cuMemFree(then));
}

// The program has started, but has allocated nothing yet when its session ends.
TASK(allocates_late) {
  start();
  tell_and_await_test();
  Memory memory;
  memory.take();
  memory.free();
}

// Its runtime folder is named as seen from where it has started, as by a daemon.
TASK(changes_its_directory) {
  start();
  MUST(::chdir("/") == 0);
  tell_and_await_test();
  Memory memory;
  memory.take();
  memory.free();
}

// passes_on FILE: gives another program a block by legacy IPC, twice; the test restarts the broker in
// between.
TASK(passes_on) {
  start();
  for (unsigned char round = 1; round <= 2; ++round) {
    CUdeviceptr at = 0;
    CUipcMemHandle handle{};
    OK(cuMemAlloc(&at, 4 * kMiB));
    OK(cuMemsetD8(at, round, 4 * kMiB));
    OK(cuIpcGetMemHandle(&handle, at));
    std::ofstream(arguments[0], std::ios::binary).write(handle.reserved, sizeof handle.reserved);
    tell_and_await_test();
  }
}
// opens FILE: the other program.
TASK(opens) {
  start();
  CUdeviceptr opened[2] = {};
  for (unsigned char round = 1; round <= 2; ++round) {
    await_test();
    CUipcMemHandle handle{};
    std::ifstream(arguments[0], std::ios::binary).read(handle.reserved, sizeof handle.reserved);
    OK(cuIpcOpenMemHandle(&opened[round - 1], handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST(byte_at(opened[round - 1]) == round && byte_at(opened[0]) == 1);
    tell_test();
  }
  await_test();
  for (const CUdeviceptr at : opened) OK(cuIpcCloseMemHandle(at));
}

}  // namespace gpumem::shim_programs
