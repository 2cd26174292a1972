#pragma once
#include <algorithm>
#include <optional>

#include "gpumem/detail/c.h"
#include "gpumem/options.h"

namespace gpumem::detail {

/// The C options of one growth. A stop request on the C++ options' token calls the growth off.
class GrowthOptions {
 public:
  explicit GrowthOptions(const GrowOptions& from) {
    options_.wait_ms = std::max<std::int64_t>(from.wait.count(), 0);
    options_.least = from.least.count;
#ifdef __cpp_lib_jthread
    if (!from.stop.stop_possible()) return;
    gpumem_canceller* made = nullptr;
    status_ = gpumem_canceller_create(&made);
    canceller_.reset(made);
    options_.canceller = made;
    if (made != nullptr) stopped_.emplace(from.stop, Cancel{made});
#endif
  }
  GrowthOptions(const GrowthOptions&) = delete;
  GrowthOptions& operator=(const GrowthOptions&) = delete;

  /// Whether the growth can be called off as it must be.
  gpumem_status status() const { return status_; }
  const gpumem_grow_options* get() const { return &options_; }

 private:
  gpumem_grow_options options_ = GPUMEM_GROW_OPTIONS_INIT;
  gpumem_status status_ = GPUMEM_OK;
#ifdef __cpp_lib_jthread
  struct Cancel {
    gpumem_canceller* canceller;
    void operator()() const noexcept { (void)gpumem_canceller_cancel(canceller); }
  };
  Handle<gpumem_canceller> canceller_;
  std::optional<std::stop_callback<Cancel>> stopped_;  ///< ends before the canceller
#endif
};

}  // namespace gpumem::detail
