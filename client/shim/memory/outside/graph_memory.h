#pragma once
#include <cuda.h>

#include <atomic>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "client/shim/memory/outside/outside.h"

namespace gpumem::shim {

/// The memory that graphs allocate. The driver takes it when an executable graph is launched or uploaded, and
/// keeps it for graphs to come until it is trimmed. Charged is what the driver keeps of each device.
/// Threads  any.
class GraphMemory {
 public:
  struct Need {
    DeviceMemory* memory = nullptr;
    Bytes bytes;
    Bytes reserved{};  ///< for a launch under way
  };
  /// By device: the allocations from `find_memory(device)` by the nodes of `graph` and of its child graphs.
  template <class Find>
  static std::vector<Need> needs_of(CUgraph graph, const Find& find_memory) {
    std::vector<Need> needs;
    for (const auto& [device, bytes] : allocated_by(graph)) {
      if (DeviceMemory* const memory = find_memory(device); memory != nullptr)
        needs.push_back({memory, bytes});
    }
    return needs;
  }

  /// Whether an executable graph is there that allocates.
  bool is_any() const { return count_.load(std::memory_order_acquire) != 0; }
  /// Has `real_call` make the executable graph `*out` of a graph with these needs.
  /// `uploads`  it takes their memory at once.   Errors  as launch().
  template <class Call>
  CUresult instantiate(const char* call, std::vector<Need> needs, bool uploads, const CUgraphExec* out,
                       const Call& real_call) {
    if (needs.empty()) return real_call();
    const auto made = std::make_shared<Exec>();
    made->needs = std::move(needs);
    const CUresult result = uploads ? launch_of(call, *made, real_call) : real_call();
    if (result == CUDA_SUCCESS) add(*out, made);
    return result;
  }
  /// Has `real_call` destroy it.
  template <class Call>
  CUresult destroy(CUgraphExec exec, const Call& real_call) {
    if (!is_any()) return real_call();
    const auto known = take(exec);
    const CUresult destroyed = real_call();
    if (known && destroyed != CUDA_SUCCESS) add(exec, known);
    return destroyed;
  }

  /// Has `real_call` launch or upload `exec`.
  /// Errors  OUT_OF_MEMORY: it needs more than the limits leave; it is not called then.
  template <class Call>
  CUresult launch(const char* call, CUgraphExec exec, const Call& real_call) {
    const auto known = is_any() ? find(exec) : nullptr;
    return known ? launch_of(call, *known, real_call) : real_call();
  }
  /// The program has trimmed the memory of `memory`'s device: graphs take it anew when they are launched.
  void trimmed(DeviceMemory& memory);
  /// Has the driver give back what is not used.
  void trim(DeviceMemory& memory);
  /// Charges what the driver keeps of the device now.
  void settle(DeviceMemory& memory);

 private:
  struct Exec {
    std::vector<Need> needs;
    std::atomic<std::uint64_t> backed_in{0};  ///< the epoch in which its memory was taken; 0: none
  };
  static std::map<CUdevice, Bytes> allocated_by(CUgraph graph);

  std::shared_ptr<Exec> find(CUgraphExec exec) const;
  std::shared_ptr<Exec> take(CUgraphExec exec);
  void add(CUgraphExec exec, const std::shared_ptr<Exec>& known);
  MeasuredCharge& charge_of(DeviceMemory& memory);
  MeasuredCharge* known_charge_of(const DeviceMemory& memory) const;
  CUresult reserve(const char* call, std::vector<Need>& needs);
  static void settle(DeviceMemory& memory, MeasuredCharge& charge, Bytes reserved);
  void settle_all(const std::vector<Need>& needs);

  template <class Call>
  CUresult launch_of(const char* call, Exec& exec, const Call& real_call) {
    std::vector<Need> needs = exec.needs;
    const bool is_backed = exec.backed_in.load() == epoch_.load();
    const CUresult charged = is_backed ? CUDA_SUCCESS : reserve(call, needs);
    if (charged != CUDA_SUCCESS) return charged;
    const std::uint64_t epoch = epoch_.load();  // the memory of other graphs may have made room
    const CUresult result = real_call();
    if (result == CUDA_SUCCESS) exec.backed_in.store(epoch);
    settle_all(needs);
    return result;
  }

  std::atomic<std::uint64_t> epoch_{1};  ///< counts trims
  std::atomic<std::size_t> count_{0};    ///< of `execs_`
  mutable Mutex mutex_;
  std::map<CUgraphExec, std::shared_ptr<Exec>> execs_ GPUMEM_GUARDED_BY(mutex_);
  std::map<const DeviceMemory*, std::unique_ptr<MeasuredCharge>> charges_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::shim
