#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/thread_guards.h"
#include "client/session/connection.h"
#include "client/session/exported_range.h"
#include "client/slice/growth.h"
#include "gpumem/bytes.h"

namespace gpumem::client {

/// The limit of a device that slices and memory past the broker share. It is taken before memory is asked
/// for, and given back when the memory is gone.
/// Invariant  taken() <= limit.   Threads  any; no locks.
class SharedLimit {
 public:
  explicit SharedLimit(Bytes limit) : limit_(limit) {}

  /// Takes `bytes`, or what is left of it if that is at least `min_bytes`; else nothing.
  [[nodiscard]] Bytes take(Bytes min_bytes, Bytes bytes) {
    std::uint64_t now = taken_.load(std::memory_order_relaxed);
    Bytes part;
    do {
      part = std::min(bytes, limit_ - Bytes{now});
      if (part < min_bytes) return {};
    } while (!taken_.compare_exchange_weak(now, now + part.count, std::memory_order_relaxed));
    return part;
  }
  void give_back(Bytes bytes) { taken_.fetch_sub(bytes.count, std::memory_order_relaxed); }

  Bytes left() const { return limit_ - taken(); }
  Bytes taken() const { return {taken_.load(std::memory_order_relaxed)}; }

 private:
  const Bytes limit_;
  std::atomic<std::uint64_t> taken_{0};
};

/// A mutex that may be held for as long as its owner waits for memory. Waiting for it has a deadline and can
/// be cancelled.
class CancellableMutex {
 public:
  using Clock = std::chrono::steady_clock;

  /// Holds the mutex for its own lifetime.
  class Guard {
   public:
    Guard() = default;
    explicit Guard(CancellableMutex& mutex) : mutex_(&mutex) {}
    Guard(Guard&& other) noexcept : mutex_(std::exchange(other.mutex_, nullptr)) {}
    Guard& operator=(Guard&& other) noexcept {
      std::swap(mutex_, other.mutex_);
      return *this;
    }
    ~Guard() {
      if (mutex_ != nullptr) mutex_->release();
    }
    explicit operator bool() const { return mutex_ != nullptr; }

   private:
    CancellableMutex* mutex_ = nullptr;
  };

  /// An empty guard if `deadline` passed, or if `stop` was requested.
  Guard lock(Clock::time_point deadline, const std::stop_token& stop) {
    const NotCancelled whole;
    std::unique_lock waiting(mutex_);
    if (!free_.wait_until(waiting, stop, deadline, [this] { return !taken_; })) return Guard();
    taken_ = true;
    return Guard(*this);
  }

 private:
  void release() {
    {
      const std::scoped_lock lock(mutex_);
      taken_ = false;
    }
    free_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable_any free_;
  bool taken_ = false;
};

/// Options of a new slice, as in SliceOptions.
struct BorrowerOptions {
  std::string device{};
  Bytes limit{};
  std::string label{};
  std::shared_ptr<SharedLimit> shared_limit{};        ///< null: the slice's limit alone counts
  std::optional<Lane::Clock::time_point> deadline{};  ///< of opening; none: the connection's timeout
  bool in_host_store = false;                         ///< in place of a device
  bool is_private = false;                            ///< no other process ever maps its memory
};

/// The broker's view of a slice: requests for it, and what the broker must be told. The derived class decides
/// what is done with the memory.
/// Threads  any. Growths hold growth_mutex(), for as long as one waits. `returning_` is held shared until the
///          broker has been told of a release.
///          Order: growth_mutex(), `returning_`, the derived class's; of several slices, the lower id first.
class Borrower {
 public:
  using Leases = std::vector<std::uint64_t>;

  /// Does not end the slice. The derived class returns its memory and then calls close().
  virtual ~Borrower() = default;
  Borrower(const Borrower&) = delete;
  Borrower& operator=(const Borrower&) = delete;

  Result<void> usable() const { return connection_->usable(); }

  // For growths (growth.h).
  CancellableMutex& growth_mutex() { return growing_; }
  /// Asks the broker for a handle of a range that lies in leases of the slice.
  /// Errors  as Slice::export_handle.
  Result<lane::HandleBytes> make_handle(const lane::ExportHandle& request);
  /// Tells the broker of all released memory, also of memory that it could not be told of before. Waits until
  /// that is done or `deadline` has passed, and returns the committed bytes.
  Bytes committed_and_told(std::chrono::steady_clock::time_point deadline);
  /// Makes `portion` part of the slice if `rest`, which this calls, succeeds. Otherwise nothing is kept.
  virtual Result<void> take(Portion portion, const std::function<Result<void>()>& rest) = 0;
  /// Tells the broker that `leases` are released, and what it could not be told before.
  Result<void> return_leases(Leases leases) {
    return return_leases(std::move(leases), connection_->lane().deadline());
  }
  Result<void> return_leases(Leases leases, Lane::Clock::time_point deadline);
  /// Tells the broker, at once or when it answers again, that `leases` of `slice` are released.
  static void return_later(Connection& connection, std::uint64_t slice,
                           std::span<const std::uint64_t> leases);

  Connection& connection() { return *connection_; }
  std::uint64_t id() const { return opened_.id; }
  Bytes committed() const { return {figures_.committed()}; }
  Bytes limit() const { return opened_.limit; }
  Bytes granularity() const { return opened_.granularity; }
  const SharedDevice& device() const { return opened_.device; }

 protected:
  /// A slice that the broker has just opened.
  struct Opened {
    SharedDevice device;
    std::uint64_t id = 0;
    Bytes limit;
    Bytes granularity;
    /// Alignment of its addresses: a multiple of both sides' granularity.
    Bytes alignment() const {
      return device.has_files() ? granularity : std::max(granularity, device.device->granularity);
    }
  };
  /// Errors  as Session::open_slice.
  static Result<Opened> open(Connection& connection, const BorrowerOptions& options);
  /// Ends a slice that holds nothing, at once or when the broker answers again. The end of the session does
  /// so too.
  static void close(Connection& connection, std::uint64_t id) {
    close(connection, id, connection.lane().deadline());
  }
  /// Ends this slice, whose `leases` are released: all that it has, or it stays open.
  void end(Leases leases, bool all);

  /// `addresses`  reserved for the slice, for its figures.
  Borrower(std::shared_ptr<Connection> connection, Opened opened, Bytes addresses);

  SliceFigures& figures() { return figures_; }
  const SliceFigures& figures() const { return figures_; }
  std::shared_timed_mutex& returning() { return returning_; }

 private:
  /// Whether something was released that the broker does not know of.
  bool owes();
  static void close(Connection& connection, std::uint64_t id, Lane::Clock::time_point deadline);
  Result<void> return_batch(const Leases& leases, Lane::Clock::time_point deadline);

  const std::shared_ptr<Connection> connection_;
  const Opened opened_;
  SliceFigures figures_;
  CancellableMutex growing_;
  std::shared_timed_mutex returning_;
  Mutex owing_;
  std::vector<Leases> owed_ GPUMEM_GUARDED_BY(owing_);
};

}  // namespace gpumem::client
