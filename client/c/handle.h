#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "client/fork_guard.h"
#include "gpumem/result.h"

namespace gpumem::c_abi {

/// The object that a handle points at. It lasts until it is freed, so that using a closed handle is an error
/// and not a use after free. All objects are on a list, so that leak checkers find them.
class Lasting {
 public:
  Lasting() {
    const client::NoFork consistent;  // a forked child finds the list whole
    next_ = first_;
    if (next_ != nullptr) next_->previous_ = this;
    first_ = this;
  }
  Lasting(const Lasting&) = delete;
  Lasting& operator=(const Lasting&) = delete;

  /// False in a forked child of the process that made it.
  bool is_of_this_process() const { return generation_ == client::process_generation(); }

 protected:
  ~Lasting() {
    const client::NoFork consistent;
    if (next_ != nullptr) next_->previous_ = previous_;
    (previous_ != nullptr ? previous_->next_ : first_) = next_;
  }

 private:
  static inline Lasting* first_ = nullptr;  ///< guarded by NoFork, as the links are
  Lasting* next_ = nullptr;
  Lasting* previous_ = nullptr;
  const std::uint64_t generation_ = client::process_generation();
};

/// Holds the object of a handle until the handle is closed.
/// Threads  any. A call keeps the object that it uses alive; after closing, it ends with the last such call.
template <class T>
class Kept {
 public:
  /// `what`  names the kind of handle in messages: `session`.
  Kept(const char* what, std::shared_ptr<T> value) : what_(what), value_(std::move(value)) {}
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  /// Errors  kFailedPrecondition: closed, or in a forked child, where the mutex may stay locked.
  Result<std::shared_ptr<T>> use() {
    if (auto here = client::check_not_forked(generation_); !here) return here.error();
    const MutexLock lock(mutex_);
    if (!value_) return closed();
    return value_;
  }

  /// Takes the object out of the handle. Errors  as use.
  Result<std::shared_ptr<T>> take() {
    if (auto here = client::check_not_forked(generation_); !here) return here.error();
    const MutexLock lock(mutex_);
    if (!value_) return closed();
    return std::exchange(value_, nullptr);
  }

 private:
  Error closed() const {
    return {Code::kFailedPrecondition, std::string("the ") + what_ + " has been closed"};
  }

  const char* const what_;
  const std::uint64_t generation_ = client::process_generation();
  Mutex mutex_;
  std::shared_ptr<T> value_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::c_abi
