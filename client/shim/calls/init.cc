// The beginning of a process, and its figures for others.
#include <algorithm>
#include <cstdint>

#include "client/allocator/thread_cache.h"
#include "client/shim/calls.h"
#include "client/shim/calls/guarded.h"
#include "client/shim/memory/process.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuInit)> real_init("cuInit");

bool answer_figures(const unsigned char* named, std::uint64_t* total, std::uint64_t* used) {
  DeviceMemory::Uuid uuid;
  std::copy_n(named, uuid.size(), uuid.begin());
  Bytes limit;
  Bytes in_use;
  if (!Process::current().figures(uuid, &limit, &in_use)) return false;
  *total = limit.count;
  *used = in_use.count;
  return true;
}

}  // namespace

CUresult calls::cuInit(unsigned int flags) {
  // The kernel takes its time for it in a program with threads, which goes on meanwhile.
  (void)guarded([] {
    allocator::ThreadCache::prepare();
    return CUDA_SUCCESS;
  });
  const CUresult started = real_init(flags);
  if (started != CUDA_SUCCESS) return started;
  return guarded([] { return Process::current().start(); });
}

}  // namespace gpumem::shim

extern "C" bool gpumem_shim_figures(const unsigned char uuid[16], std::uint64_t* total, std::uint64_t* used) {
  bool known = false;
  (void)gpumem::shim::guarded([&] {
    known = gpumem::shim::answer_figures(uuid, total, used);
    return CUDA_SUCCESS;
  });
  return known;
}
