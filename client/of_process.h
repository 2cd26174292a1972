#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "client/fork_guard.h"

namespace gpumem::client {

/// Base of objects of which each process has one.
class OfProcess {
 public:
  OfProcess() = default;
  OfProcess(const OfProcess&) = delete;
  OfProcess& operator=(const OfProcess&) = delete;
  bool is_of_this_process() const { return generation_ == process_generation(); }

 private:
  const std::uint64_t generation_ = process_generation();
};

/// This process's T, an OfProcess, made at the first use and never destroyed. A forked child makes its own,
/// as the locks of its parent's may be held by threads that do not exist in the child. `latest`  a static
/// variable, null at first, of no other use. `make`    makes a std::unique_ptr<T>; is given the parent's, or
/// null. Several threads may call it at once,
///           and one of the results is kept.
template <class T, class Make>
T& this_process(std::atomic<T*>& latest, const Make& make) {
  T* known = latest.load(std::memory_order_acquire);
  if (known != nullptr && known->is_of_this_process()) return *known;
  std::unique_ptr<T> made = make(known);
  if (!latest.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) return *known;
  return *made.release();
}

}  // namespace gpumem::client
