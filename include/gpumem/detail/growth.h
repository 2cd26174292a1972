#pragma once
#include <algorithm>
#include <optional>

#include "gpumem/detail/c.h"
#include "gpumem/options.h"

namespace gpumem::detail {

#ifdef __cpp_lib_jthread

/// A C canceller that a stop request cancels. None for a token that nobody can stop.
class Canceller {
 public:
  explicit Canceller(const std::stop_token& stop) {
    if (!stop.stop_possible()) return;
    gpumem_canceller* made = nullptr;
    status_ = gpumem_canceller_create(&made);
    canceller_.reset(made);
    if (made != nullptr) stopped_.emplace(stop, Cancel{made});
  }
  Canceller(const Canceller&) = delete;
  Canceller& operator=(const Canceller&) = delete;

  gpumem_status status() const { return status_; }
  gpumem_canceller* get() const { return canceller_.get(); }

 private:
  struct Cancel {
    gpumem_canceller* canceller;
    void operator()() const noexcept { (void)gpumem_canceller_cancel(canceller); }
  };
  gpumem_status status_ = GPUMEM_OK;
  Handle<gpumem_canceller> canceller_;
  std::optional<std::stop_callback<Cancel>> stopped_;  ///< ends before the canceller
};

#endif

/// The C form of a wait for memory.
inline std::int64_t wait_ms(std::optional<std::chrono::milliseconds> wait) {
  if (!wait) return 0;
  return wait->count() > 0 ? wait->count() : GPUMEM_AT_ONCE;
}

/// The C options of one growth. A stop request on the C++ options' token calls the growth off.
class GrowthOptions {
 public:
  explicit GrowthOptions(const GrowOptions& from)
#ifdef __cpp_lib_jthread
      : canceller_(from.stop)
#endif
  {
    options_.wait_ms = wait_ms(from.wait);
    options_.least = from.least.count;
#ifdef __cpp_lib_jthread
    options_.canceller = canceller_.get();
#endif
  }
  GrowthOptions(const GrowthOptions&) = delete;
  GrowthOptions& operator=(const GrowthOptions&) = delete;

  /// Whether the growth can be called off as it must be.
  gpumem_status status() const {
#ifdef __cpp_lib_jthread
    return canceller_.status();
#else
    return GPUMEM_OK;
#endif
  }
  const gpumem_grow_options* get() const { return &options_; }

 private:
  gpumem_grow_options options_ = GPUMEM_GROW_OPTIONS_INIT;
#ifdef __cpp_lib_jthread
  Canceller canceller_;
#endif
};

}  // namespace gpumem::detail
