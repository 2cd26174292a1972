#pragma once
#include <algorithm>

#include "gpumem/detail/canceller.h"

namespace gpumem::detail {

/// The C options of one growth. A stop request on the C++ options' token calls the growth off.
class GrowthOptions {
 public:
  explicit GrowthOptions(const GrowOptions& from)
#ifdef __cpp_lib_jthread
      : canceller_(from.stop)
#endif
  {
    options_.wait_ms = std::max<std::int64_t>(from.wait.count(), 0);
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
