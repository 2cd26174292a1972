#pragma once
#include "daemon/core/gate.h"
#include "daemon/core/observation.h"
#include "daemon/rpc/calls.h"
#include "gpumem/v1/broker.grpc.pb.h"

namespace gpumem::rpc {

/// Answers Monitor.Reconcile with what was last seen of every device; if the request wants it `now`, after
/// `observer` (none: there is nobody to ask) has looked again, or when that takes longer than five seconds.
grpc::ServerUnaryReactor* reconcile(core::Gate& gate, Calls& calls, core::Observer* observer,
                                    const v1::ReconcileRequest& request, v1::ReconcileResponse* response);

}  // namespace gpumem::rpc
