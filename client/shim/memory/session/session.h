#pragma once
#include <cuda.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "client/allocator/engine.h"
#include "client/session/figures.h"
#include "gpumem/result.h"

namespace gpumem::client {
class Connection;
class LooseExtents;
class SharedLimit;
}  // namespace gpumem::client

namespace gpumem::shim {

/// The process's session with the broker. It goes on when the broker is restarted; if the next broker does
/// not resume it, what was borrowed stays mapped, and another session takes its place for what is borrowed
/// then. Threads  any.   Blocks  while a session is opened.
class Session {
 public:
  /// Opens the first one; `label` is that of all. `patience`  how long the broker may take to answer: after
  /// that nothing is left that it could answer.   Errors  as Session::connect of the library.
  Result<void> open(const std::string& label, std::chrono::milliseconds patience);
  /// The session, another one if that is lost. Null: none was opened.
  /// Errors  as open(): the lost one stays.
  Result<std::shared_ptr<client::Connection>> usable();
  /// The most that the other sessions of this one's job were seen to hold of a device at one time. This
  /// process looks when it opens the session, and at each call. The figure never shrinks, because programs
  /// (vLLM) rely on free memory that does not grow by itself. Zero: the session is in no job.
  /// `device`  its index in the broker's page.
  Bytes most_of_others(const client::Connection& connection, std::size_t device);

 private:
  Mutex mutex_;
  std::string label_ GPUMEM_GUARDED_BY(mutex_);
  std::shared_ptr<client::Connection> connection_ GPUMEM_GUARDED_BY(mutex_);
  std::array<std::atomic<std::uint64_t>, kMaxDevices> most_of_others_{};
};

/// The slices of one session on one device: one for blocks, and one for memory that the program maps itself.
/// Never destroyed: the program may use its memory until the very end, also when the session is lost.
/// Threads  any.
class Slices {
 public:
  /// Held memory, including idle memory, is charged to `shared_limit`.
  /// `before`  the slices of the session before, which was lost; or null.
  /// Errors  as Session::open_allocator.
  static Result<std::unique_ptr<Slices>> open(std::shared_ptr<client::Connection> connection,
                                              const AllocatorOptions& options,
                                              std::shared_ptr<client::SharedLimit> shared_limit,
                                              Slices* before);

  client::Connection& connection() const { return *connection_; }
  allocator::Engine& engine() const { return *engine_; }
  Slices* before() const { return before_; }

  /// Opens the slice for memory that the program maps itself, at the first call; then loose() is there.
  /// Errors  as Session::open_slice.
  Result<void> open_loose();
  client::LooseExtents& loose() const { return *loose_.load(std::memory_order_acquire); }

  /// The handle of a block cannot be redeemed any more: of imports that there are, nothing changes. Does
  /// nothing if the broker is too old to know of that.
  void revoke(const std::array<char, 64>& handle) const;

  /// Whether its session is lost for good. What is freed of it then is of no use here.
  bool is_lost() const;

 private:
  Slices(std::shared_ptr<client::Connection> connection, std::shared_ptr<allocator::Engine> engine,
         const AllocatorOptions& options, Slices* before);

  const std::shared_ptr<client::Connection> connection_;
  const std::shared_ptr<allocator::Engine> engine_;
  const AllocatorOptions options_;
  Slices* const before_;
  Mutex opening_;  ///< held for the broker's answer
  std::atomic<client::LooseExtents*> loose_{nullptr};
};

}  // namespace gpumem::shim
