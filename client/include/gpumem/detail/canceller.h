#pragma once
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

}  // namespace gpumem::detail
