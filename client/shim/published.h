#pragma once
#include <atomic>
#include <memory>

namespace gpumem::shim {

/// A value that is made at the first use and never destroyed. Threads that come first together each make one;
/// one of these stays. There is no lock, on purpose: what is made here comes from dlopen and dlsym, which
/// take the loader's lock, and the constructor of a library, which runs under that lock, may be the next to
/// ask.
template <class Value>
class Published {
 public:
  constexpr Published() = default;

  /// The value; `make()` makes it, if there is none yet.
  template <class Make>
  const Value& get(Make&& make) {
    if (const Value* const known = value_.load(std::memory_order_acquire); known != nullptr) return *known;
    auto made = std::make_unique<const Value>(make());
    const Value* first = nullptr;
    if (value_.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel)) return *made.release();
    return *first;
  }

 private:
  std::atomic<const Value*> value_ = nullptr;
};

}  // namespace gpumem::shim
