#pragma once
#include <cuda.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "client/shim/memory/outside/outside.h"

namespace gpumem::shim {

/// A pool that is the driver's own, and takes memory of a device: it can be passed to other processes, or its
/// memory is managed. It is charged with what the driver reserves for it.
/// Threads  any.
class DriverPool {
 public:
  DriverPool(CUmemoryPool handle, DeviceMemory& memory) : handle_(handle), charge_(memory) {}

  DeviceMemory& memory() const { return charge_.memory(); }
  /// Has `real_call` allocate `bytes`.
  template <class Call>
  CUresult allocate(const char* call, Bytes bytes, const Call& real_call) {
    const CUresult charged = charge_.reserve(call, used(), bytes);
    if (charged != CUDA_SUCCESS) return charged;
    const CUresult result = real_call();
    memory().tell_refusal_of_driver(call, bytes, result);
    if (result == CUDA_SUCCESS) used_.fetch_add(bytes.count);
    settle(bytes);
    return result;
  }
  void freed(Bytes bytes) {
    used_.fetch_sub(bytes.count);
    settle({});
  }
  /// Charges what the driver keeps now.
  void settle(Bytes reserved);
  /// The driver gives back what is not used.
  void trim();
  /// Its handle is about to go, or has stayed. A destroyed pool keeps the blocks that are in use.
  void set_destroyed(bool is_destroyed);

 private:
  Bytes used() const { return {used_.load()}; }
  /// The memory that the driver keeps. Called while the charge is settled, so that the handle exists.
  Bytes kept() const;

  const CUmemoryPool handle_;
  MeasuredCharge charge_;
  std::atomic<std::uint64_t> used_{0};
  std::atomic<bool> is_destroyed_{false};
};

/// The pools of the driver's own, and the blocks in them.
/// Threads  any.
class DriverPools {
 public:
  /// Nothing happens if it is known.
  void add(CUmemoryPool handle, DeviceMemory& memory);
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
    pool->settle({});
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
      block->pool->freed(block->bytes);
    else
      add_block(at, std::move(block->pool), block->bytes);
    return freed;
  }

  /// Charges what the driver keeps of the device now: it gives memory back when somebody waits for work.
  void settle(const DeviceMemory& memory);
  /// Has the driver give back what is not used of the device.
  void trim(const DeviceMemory& memory);

 private:
  struct Block {
    std::shared_ptr<DriverPool> pool;
    Bytes bytes;
  };
  std::shared_ptr<DriverPool> take(CUmemoryPool handle);
  void put_back(CUmemoryPool handle, const std::shared_ptr<DriverPool>& pool);
  std::optional<Block> take_block(CUdeviceptr at);
  std::vector<std::shared_ptr<DriverPool>> all_of(const DeviceMemory& memory) const;

  mutable Mutex mutex_;
  std::map<CUmemoryPool, std::shared_ptr<DriverPool>> pools_ GPUMEM_GUARDED_BY(mutex_);
  std::map<CUdeviceptr, Block> blocks_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::shim
