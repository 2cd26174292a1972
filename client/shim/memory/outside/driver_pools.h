#pragma once
#include <cuda.h>

#include <atomic>
#include <boost/icl/interval_set.hpp>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "client/shim/memory/outside/outside.h"

namespace gpumem::shim {

/// A pool that is the driver's own: it can be passed to other processes, its memory is managed, or it lies on
/// the host. It is charged with what the driver reserves for it.
/// Threads  any.
class DriverPool {
 public:
  DriverPool(CUmemoryPool handle, Chargeable& memory) : handle_(handle), charge_(memory) {}

  Chargeable& memory() const { return charge_.memory(); }
  /// Has `real_call` allocate `bytes` at `*out`. If the driver takes more for it than a limit has room for,
  /// `undo` frees the block again.   Errors  the driver's; OUT_OF_MEMORY, and the reason is told: a limit.
  template <class Call, class Undo>
  CUresult allocate(const char* call, Bytes bytes, const CUdeviceptr* out, const Call& real_call,
                    const Undo& undo) {
    Bytes growth;
    const auto need = [&] { return need_of(bytes); };
    if (const CUresult refused = charge_.reserve(call, need, &growth); refused != CUDA_SUCCESS)
      return refused;
    CUresult result = CUDA_SUCCESS;
    Bytes grown;
    const bool fits = charge_.settle(growth, [&] {
      const Bytes before = look();
      result = real_call();
      if (result == CUDA_SUCCESS) used_.fetch_add(bytes.count);
      const Bytes now = look();
      grown = now.minus(before);
      if (result == CUDA_SUCCESS) note_block(*out, bytes, grown);
      return now;
    });
    memory().tell_refusal_of_driver(call, bytes, result);
    if (result != CUDA_SUCCESS || fits || grown.is_zero()) return result;
    const auto all = [&] { return MeasuredCharge::Need{look(), {}}; };
    const CUresult charged = charge_.reserve(call, all, &growth);
    if (charged == CUDA_SUCCESS) return charged;
    (void)undo();
    forget_block(*out, bytes, grown);
    trim();
    return charged;
  }
  void freed(CUdeviceptr at, Bytes bytes);
  /// Charges what the driver keeps now.
  void settle();
  /// The driver gives back what is not used.
  void trim();
  /// Its handle is about to go, or has stayed. A destroyed pool keeps the blocks that are in use.
  void set_destroyed(bool is_destroyed);

 private:
  using Addresses = boost::icl::interval_set<CUdeviceptr>;

  Bytes used() const { return {used_.load()}; }
  void forget_block(CUdeviceptr at, Bytes bytes, Bytes grown);

  // While the charge is reserved or settled, so that the handle exists and one thread at a time is here.
  Bytes kept() const;
  Bytes look();
  MeasuredCharge::Need need_of(Bytes bytes);
  void note_block(CUdeviceptr at, Bytes bytes, Bytes grown);

  const CUmemoryPool handle_;
  MeasuredCharge charge_;
  std::atomic<std::uint64_t> used_{0};
  std::atomic<bool> is_destroyed_{false};
  Bytes last_kept_;  ///< as last looked at
  Addresses idle_;   ///< kept by the driver for no block, as far as it is known
};

/// The pools of the driver's own, and the blocks in them.
/// Threads  any.
class DriverPools {
 public:
  /// Nothing happens if it is known.
  void add(CUmemoryPool handle, Chargeable& memory);
  /// Null: not known.
  std::shared_ptr<DriverPool> find(CUmemoryPool handle) const;
  /// Has `real_call` destroy it. Meanwhile it is not known: the next pool may have its handle at once.
  template <class Call>
  CUresult destroy(CUmemoryPool handle, const Call& real_call) {
    const auto pool = take(handle);
    if (pool) pool->set_destroyed(true);
    const CUresult destroyed = real_call();
    if (!pool) return destroyed;
    if (destroyed != CUDA_SUCCESS) {
      pool->set_destroyed(false);
      put_back(handle, pool);
    }
    pool->settle();
    return destroyed;
  }

  void add_block(CUdeviceptr at, std::shared_ptr<DriverPool> pool, Bytes bytes);
  /// Has `real_call` free the block that begins at `at`. Nothing: there is none, and nothing was called.
  template <class Call>
  std::optional<CUresult> free(CUdeviceptr at, const Call& real_call) {
    auto block = take_block(at);
    if (!block) return std::nullopt;
    const CUresult freed = real_call();
    if (freed == CUDA_SUCCESS)
      block->pool->freed(at, block->bytes);
    else
      add_block(at, std::move(block->pool), block->bytes);
    return freed;
  }

  /// Charges what the driver keeps of `memory` now: it gives memory back when somebody waits for work.
  void settle(const Chargeable& memory);
  /// Has the driver give back what is not used of `memory`.
  void trim(const Chargeable& memory);

 private:
  struct Block {
    std::shared_ptr<DriverPool> pool;
    Bytes bytes;
  };
  std::shared_ptr<DriverPool> take(CUmemoryPool handle);
  void put_back(CUmemoryPool handle, const std::shared_ptr<DriverPool>& pool);
  std::optional<Block> take_block(CUdeviceptr at);
  std::vector<std::shared_ptr<DriverPool>> all_of(const Chargeable& memory) const;

  mutable Mutex mutex_;
  std::map<CUmemoryPool, std::shared_ptr<DriverPool>> pools_ GPUMEM_GUARDED_BY(mutex_);
  std::map<CUdeviceptr, Block> blocks_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::shim
