#pragma once
#include "base/mutex.h"
#include "client/figures.h"
#include "client/shim/memory/session.h"

namespace gpumem::shim {

/// The figures of the broker's page for the tenant on the slices' device.
/// Errors  as Connection::broker_figures; kNotFound: the broker does not lend the device.
Result<DeviceFigures> tenant_of(const Slices& of);
/// Errors  kResourceExhausted: the tenant's limit has no room for `more`. Above the limit it has none for
///         nothing either.
Result<void> check_room(const DeviceFigures& tenant, Bytes more);

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
