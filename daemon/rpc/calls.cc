#include "daemon/rpc/calls.h"

namespace gpumem::rpc {

void Calls::begin() {
  const MutexLock lock(mutex_);
  ++under_way_;
}

void Calls::end() {
  const MutexLock lock(mutex_);
  if (--under_way_ == 0) none_.notify_all();
}

void Calls::await_none(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const MutexLock lock(mutex_);
  while (under_way_ != 0 && std::chrono::steady_clock::now() < deadline) none_.wait_until(mutex_, deadline);
}

}  // namespace gpumem::rpc
