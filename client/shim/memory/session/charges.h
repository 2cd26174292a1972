#pragma once
#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/mutex.h"
#include "client/session/figures.h"
#include "client/shim/memory/session/session.h"
#include "gpumem/bytes.h"

namespace gpumem::shim {

/// This process's usage of one device, compared with its limit. A request is reserved before it is made, so
/// two threads never pass the limit together.
/// Invariant  used() <= limit().
/// Threads  any; no locks.
class Budget {
 public:
  explicit Budget(Bytes limit) : limit_(limit) {}

  /// False: it would pass the limit, and nothing has changed.
  [[nodiscard]] bool reserve(Bytes bytes) {
    std::uint64_t now = used_.load(std::memory_order_relaxed);
    do {
      if (bytes.count > limit_.count - now) return false;
    } while (!used_.compare_exchange_weak(now, now + bytes.count, std::memory_order_relaxed));
    return true;
  }
  /// Reserves as much of `bytes` as the limit allows; how much that is.
  [[nodiscard]] Bytes reserve_up_to(Bytes bytes) {
    std::uint64_t now = used_.load(std::memory_order_relaxed);
    Bytes part;
    do {
      part = std::min(bytes, Bytes{limit_.count - now});
    } while (!used_.compare_exchange_weak(now, now + part.count, std::memory_order_relaxed));
    return part;
  }
  /// The request was refused, or its memory was freed.
  void release(Bytes bytes) { used_.fetch_sub(bytes.count, std::memory_order_relaxed); }

  Bytes limit() const { return limit_; }
  /// Includes reservations.
  Bytes used() const { return {used_.load(std::memory_order_relaxed)}; }

 private:
  const Bytes limit_;
  std::atomic<std::uint64_t> used_{0};
};

/// Has charged memory that the driver itself holds.
class Dischargeable {
 public:
  virtual ~Dischargeable() = default;
  /// The driver has freed `bytes` of it.
  virtual void discharge_outside(Bytes bytes) = 0;
};

/// Charges memory that the driver itself takes, of a device or of the host.
class Chargeable : public Dischargeable {
 public:
  /// Charges memory that the driver itself is about to allocate, and tells the broker of it.
  /// `call`  the program's, for messages.
  /// Errors  OUT_OF_MEMORY, and the reason is told: a limit would be passed.
  /// Blocks  while others of the tenant hold the memory.
  virtual CUresult charge_outside(const char* call, Bytes bytes) = 0;
  /// Charges memory that the driver has taken already, as far as the limits allow. Returns the charged
  /// amount.
  virtual Bytes charge_outside_up_to(Bytes bytes) = 0;
  /// Says it if the driver has `answered` that it has no memory for what was charged here.
  virtual void tell_refusal_of_driver(const char* call, Bytes bytes, CUresult answered) = 0;
  /// The unit in which the driver takes memory.
  virtual Bytes granularity() const = 0;
};

/// The figures of the broker's page on the slices' device.
/// Errors  as Connection::broker_figures; kNotFound: the broker does not lend the device.
Result<DeviceFigures> figures_of(const Slices& of);
/// Errors  kResourceExhausted: the tenant's limit has no room for `more`, or the tenant or the job is above
///         its limit, even if `more` is zero.
Result<void> check_room(const DeviceFigures& figures, Bytes more);

/// Declares to the broker the memory that the driver itself holds for this process on one device. Each
/// declaration states the whole amount, so that the next one corrects one that was lost.
/// Threads  any; declarations do not overtake each other.
class Declaration {
 public:
  /// `to`  the slices whose session declares; move() names others.
  explicit Declaration(const Slices& to) : to_(&to) {}

  /// Declares `bytes` more. The broker would not refuse them for the tenant's sake, but put it in debt.
  /// Errors  kResourceExhausted: as check_room; kUnavailable: the broker does not answer.
  Result<void> more(Bytes bytes);
  /// Declares `bytes` less; if the broker does not answer, it is told when it does.
  Result<void> less(Bytes bytes);
  /// Declares it in the session of `to` from now on, and calls `use` before anything else is declared there.
  /// Errors  as more(); then it stays where it is.
  template <class Use>
  Result<void> move(const Slices& to, const Use& use) {
    const MutexLock lock(mutex_);
    if (!all_.is_zero()) {
      auto told = tell(to, all_);
      if (!told) return told;
    }
    to_ = &to;
    use();
    return {};
  }

 private:
  static Result<void> tell(const Slices& to, Bytes all);

  Mutex mutex_;  ///< held for the broker's answer
  const Slices* to_ GPUMEM_GUARDED_BY(mutex_);
  Bytes all_ GPUMEM_GUARDED_BY(mutex_){};
};

}  // namespace gpumem::shim
