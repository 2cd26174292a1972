#pragma once
#include <optional>

#include "daemon/core/broker/executor.h"
#include "daemon/core/words/observation.h"
#include "daemon/rpc/calls.h"
#include "gpumem/v1/broker.grpc.pb.h"

namespace gpumem::rpc {

inline constexpr std::size_t kMostHeldRefusals = 256;

/// The observer that looks at the devices, and the caller that asked.
struct Look {
  core::Observer* observer = nullptr;  ///< none: nobody does
  std::optional<int> connection;       ///< the caller's; none, or closed: refused
  std::size_t* refusing =
      nullptr;  ///< calls whose refusal is held back; the core's thread's; outlives the call
};

v1::Reconciliation reconciliation_of(const core::Reconciliation& view, const std::string& device,
                                     core::TimePoint now);

/// Answers Monitor.Reconcile with the last observation of every device. With `now` in the request, it answers
/// after a new look, or after five seconds. If too many wait for a look already, the answer is
/// kResourceExhausted, after a second: so repeating the call at once costs the caller's time, not the
/// broker's. At most kMostHeldRefusals are held back; further ones are answered at once.
grpc::ServerUnaryReactor* reconcile(core::Executor& executor, Calls& calls,
                                    const grpc::CallbackServerContext& context, Look look,
                                    const v1::ReconcileRequest& request, v1::ReconcileResponse* response);

}  // namespace gpumem::rpc
