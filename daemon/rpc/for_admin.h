#pragma once
#include <utility>

#include "daemon/api/pod_claims.h"
#include "daemon/rpc/callers.h"
#include "daemon/rpc/calls.h"
#include "daemon/rpc/convert.h"

namespace gpumem::rpc {

/// Has `act` done for the caller, with the reactor that it is to finish, on the core's thread; finishes the
/// call if nobody is there any more.
template <class Act>
grpc::ServerUnaryReactor* for_caller(core::Executor& executor, Calls& calls,
                                     grpc::CallbackServerContext* context, Act act) {
  auto* reactor = new Unary(calls);
  executor.post([&executor, reactor, connection = connection_of(*context), act = std::move(act)](
                    core::Broker&, core::TimePoint) {
    const auto caller = caller_of(executor, connection);
    if (!caller) return reactor->Finish(to_status(caller.error()));
    act(*caller, reactor);
  });
  return reactor;
}

/// The same for administrators; finishes the calls of all others.
template <class Act>
grpc::ServerUnaryReactor* for_admin(core::Executor& executor, Calls& calls,
                                    grpc::CallbackServerContext* context, Act act) {
  return for_caller(executor, calls, context,
                    [act = std::move(act)](const core::Caller& caller, Unary* reactor) {
                      if (!caller.admin) return reactor->Finish(to_status(api::no_administrator(caller)));
                      act(caller, reactor);
                    });
}

}  // namespace gpumem::rpc
