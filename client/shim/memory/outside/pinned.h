#pragma once
#include <functional>
#include <utility>

#include "base/mutex.h"
#include "client/process/messages.h"
#include "client/shim/memory/session/charges.h"
#include "client/shim/memory/session/session.h"

namespace gpumem::shim {

/// Host memory that the program pins by itself. It is declared to the broker on its host store, charged to
/// the tenant, and refused beyond the host_limit of the tenant or of the job. A broker without a host store
/// is not told.
/// Threads  any; declarations do not overtake each other.
class Pinned final : public Chargeable {
 public:
  /// `session`  outlives it.
  explicit Pinned(Session& session) : session_(session) {}

  /// While the broker is away nothing is refused, and the next declaration states the whole amount.
  /// Errors  OUT_OF_MEMORY, with a line on standard error: beyond a host_limit, or the machine.   Blocks  for
  /// the answer.
  CUresult charge_outside(const char* call, Bytes bytes) override;
  Bytes charge_outside_up_to(Bytes bytes) override;
  void discharge_outside(Bytes bytes) override;
  void tell_refusal_of_driver(const char* call, Bytes bytes, CUresult answered) override;
  Bytes granularity() const override { return mebibytes(2); }
  /// Sets the function that has the driver give back its idle memory of the host. Once, before other calls.
  void set_trim(std::function<void()> trim) { trim_driver_ = std::move(trim); }

 private:
  /// `flags`  as of lane::Charge.
  /// Errors  kResourceExhausted: a host_limit has no room; kInvalidArgument: more than the machine has.
  Result<void> declare_more(Bytes bytes, std::uint64_t flags);
  Result<void> declare(Bytes all, std::uint64_t flags) GPUMEM_REQUIRES(mutex_);

  Session& session_;
  std::function<void()> trim_driver_;
  client::RefusalMessages messages_;
  Mutex mutex_;  ///< held for the broker's answer
  Bytes all_ GPUMEM_GUARDED_BY(mutex_){};
};

}  // namespace gpumem::shim
