#pragma once

#include "base/mutex.h"
#include "client/process/messages.h"
#include "client/shim/memory/outside/outside.h"
#include "client/shim/memory/session/session.h"

namespace gpumem::shim {

/// Host memory that the program pins by itself. It is declared to the broker on its host store, charged to
/// the tenant, and refused beyond the tenant's host_limit. A broker without a host store is not told.
/// Threads  any; declarations do not overtake each other.
class Pinned final : public Dischargeable {
 public:
  /// `session`  outlives it.
  explicit Pinned(Session& session) : session_(session) {}

  /// Charges `bytes` that the driver is about to pin. While the broker is away nothing is refused, and the
  /// next declaration states the whole amount.
  /// Errors  OUT_OF_MEMORY, with a line on standard error: beyond the host_limit.   Blocks.
  CUresult charge(const char* call, Bytes bytes);
  void discharge_outside(Bytes bytes) override;

 private:
  /// `more`  of `all`, that there has to be room for.
  /// Errors  kResourceExhausted: there is none.
  Result<void> declare(Bytes all, Bytes more) GPUMEM_REQUIRES(mutex_);

  Session& session_;
  client::RefusalMessages messages_;
  Mutex mutex_;  ///< held for the broker's answer
  Bytes all_ GPUMEM_GUARDED_BY(mutex_){};
};

}  // namespace gpumem::shim
