#pragma once
#include <cuda.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "client/process/fork_guard.h"
#include "client/shim/memory/blocks/blocks.h"
#include "client/shim/memory/blocks/device_memory.h"
#include "client/shim/memory/blocks/handles.h"
#include "client/shim/memory/blocks/ipc_blocks.h"
#include "client/shim/memory/outside/driver_pools.h"
#include "client/shim/memory/outside/graph_memory.h"
#include "client/shim/memory/outside/outside.h"
#include "client/shim/memory/outside/pinned.h"
#include "client/shim/memory/session/session.h"

namespace gpumem::shim {

/// The shim's state of one process: session, slices, blocks. A forked child has its own; its parent's is not
/// touched there. It is never destroyed: programs free memory until the very end.
/// Threads  any.
class Process : public client::OfProcess {
 public:
  static constexpr std::size_t kDevices = 64;

  static Process& current();

  /// After the real cuInit has succeeded: connects to the broker, once. In system mode, a process that cannot
  /// borrow is left to the driver, and nothing is said.
  /// Errors  SYSTEM_NOT_READY, with a line on standard error: there is no broker and none is optional, or the
  ///         environment cannot be read.
  CUresult start();
  /// Whether memory is borrowed, or must be and cannot. False before start(), and without a broker that is
  /// optional.
  bool is_brokered() const { return state_.load(std::memory_order_acquire) >= State::kBrokered; }

  /// The memory of `device`, whose slice is opened at the first use. Null with SUCCESS: it is the driver's
  /// own, because nothing is borrowed, the broker does not lend the device, or in system mode its slice
  /// cannot be opened, or DeviceMemory::is_left_to_driver.
  struct Found {
    CUresult result = CUDA_SUCCESS;
    DeviceMemory* memory = nullptr;
  };
  Found memory_of(CUdevice device);
  /// The memory of `device`, if it is open already.
  DeviceMemory* open_memory_of(CUdevice device) const;
  /// The one whose blocks can have `address`, or null.
  DeviceMemory* memory_at(CUdeviceptr address) const;
  /// As DeviceMemory::release_stream.
  void release_stream(CUstream stream);
  /// Whether `address` is of a block, of this process or opened of another: mapped underneath, but not by the
  /// program.
  bool is_of_a_block(CUdeviceptr address) const {
    return memory_at(address) != nullptr || imports_.has_address(address);
  }

  Session& session() { return session_; }
  /// Until when a request of now waits for a broker that is away.
  WaitPolicy::Clock::time_point patience() const { return WaitPolicy::Clock::now() + settings_.wait; }
  Blocks& blocks() { return blocks_; }
  Pools& pools() { return pools_; }
  Handles& handles() { return handles_; }
  Outside& outside() { return outside_; }
  Pinned& pinned() { return pinned_; }
  DriverPools& driver_pools() { return driver_pools_; }
  GraphMemory& graph_memory() { return graph_memory_; }
  /// Charges what the driver keeps of the device now for pools of its own and for graphs.
  void settle(DeviceMemory& memory);
  Exports& exports() { return exports_; }
  Imports& imports() { return imports_; }
  Captures& captures() { return captures_; }
  const Captures& captures() const { return captures_; }
  /// To be held while the primary context of `device` is made or ended. Threads that retain it at once make
  /// one. A thread that ends its last use knows that it was the last.
  Mutex& primary_context(CUdevice device) {
    return primary_contexts_[static_cast<std::size_t>(device) % kDevices];
  }
  /// From now on `device` may use the memory of `owner`, whose slice may be opened later.
  CUresult allow_peer(CUdevice owner, CUdevice device);

  /// Of the device with this UUID. Before start() it connects to the broker, if has_slice_from_start(); it
  /// starts no driver. Nothing: no memory is borrowed of the device. The first answer of a device decides
  /// whether there are figures: a total never changes.
  std::optional<MemoryFigures> figures(const DeviceMemory::Uuid& uuid);

 private:
  enum class State {
    kNew,
    kForwarded,
    kBrokered,
    kRefused,  ///< cuInit has failed: nothing is allocated, not of the driver's own memory either
  };
  static constexpr std::chrono::milliseconds kUsualPatience{1000};  ///< as of SessionOptions
  /// How long a process waits in system mode for the broker's greeting, before it is left to the driver.
  static constexpr std::chrono::milliseconds kSystemPatience{500};
  Process();
  CUresult connect() GPUMEM_REQUIRES(mutex_);
  CUresult refuse(const std::string& why) GPUMEM_REQUIRES(mutex_);
  Result<void> borrow_by(const Settings& settings, std::chrono::milliseconds patience = kUsualPatience)
      GPUMEM_REQUIRES(mutex_);
  /// The session is open.
  void borrow(const Settings& settings) GPUMEM_REQUIRES(mutex_);
  void connect_by_system() GPUMEM_REQUIRES(mutex_);
  bool connect_quietly() GPUMEM_REQUIRES(mutex_);
  std::optional<MemoryFigures> figures_now(const DeviceMemory::Uuid& uuid);
  Found open(CUdevice device);
  /// All of them, if none is open.
  void leave_to_driver(std::size_t device) GPUMEM_REQUIRES(mutex_);
  void allow_copies(DeviceMemory& opened) GPUMEM_REQUIRES(mutex_);

  std::atomic<State> state_{State::kNew};
  Blocks blocks_;
  Pools pools_;
  Handles handles_;
  Outside outside_;
  DriverPools driver_pools_;
  GraphMemory graph_memory_;
  Exports exports_;
  Imports imports_;
  Captures captures_;
  std::array<std::atomic<DeviceMemory*>, kDevices> memory_{};
  std::array<Mutex, kDevices> primary_contexts_;
  Mutex mutex_;  ///< held while something is opened
  Settings settings_;
  Session session_;
  Pinned pinned_{session_};
  std::optional<WaitPolicy> opening_ GPUMEM_GUARDED_BY(mutex_){};  ///< of devices, while the broker is away
  std::array<bool, kDevices> not_lent_ GPUMEM_GUARDED_BY(mutex_){};
  std::array<std::vector<int>, kDevices> peers_ GPUMEM_GUARDED_BY(mutex_){};  ///< of devices not opened yet
  Mutex shown_mutex_;
  /// By NVML, the last time; nothing: the device itself.
  std::map<DeviceMemory::Uuid, std::optional<MemoryFigures>> shown_ GPUMEM_GUARDED_BY(shown_mutex_){};
  client::RefusalMessages messages_;
};

}  // namespace gpumem::shim
