#pragma once
#include <utility>

#include "daemon/api/pod_claims.h"
#include "daemon/rpc/callers.h"
#include "daemon/rpc/calls.h"
#include "daemon/rpc/convert.h"

namespace gpumem::rpc {

/// A call that has come to the core's thread, where it is told who makes it.
struct Asked {
  const core::Caller& caller;
  Unary* reactor;  ///< to be finished
  core::Broker& broker;
  core::TimePoint now;
};

/// Has `act` done with the call; finishes it if nobody is there any more.
template <class Act>
grpc::ServerUnaryReactor* for_caller(core::Executor& executor, Calls& calls,
                                     grpc::CallbackServerContext* context, Act act) {
  auto* reactor = new Unary(calls);
  executor.post([&executor, reactor, connection = connection_of(*context), act = std::move(act)](
                    core::Broker& broker, core::TimePoint now) {
    const auto caller = caller_of(executor, connection);
    if (!caller) return reactor->Finish(to_status(caller.error()));
    act(Asked{*caller, reactor, broker, now});
  });
  return reactor;
}

/// As for_caller(), but for administrators alone; finishes the calls of all others.
template <class Act>
grpc::ServerUnaryReactor* for_admin(core::Executor& executor, Calls& calls,
                                    grpc::CallbackServerContext* context, Act act) {
  return for_caller(executor, calls, context, [act = std::move(act)](const Asked& asked) {
    if (!asked.caller.admin) return asked.reactor->Finish(to_status(api::no_administrator(asked.caller)));
    act(asked);
  });
}

}  // namespace gpumem::rpc
