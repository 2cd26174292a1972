#pragma once
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "daemon/core/executor.h"
#include "daemon/rpc/calls.h"
#include "gpumem/v1/broker.pb.h"

namespace gpumem::rpc {

/// One Broker.Grow, which may wait long and be cancelled meanwhile. gRPC keeps it until Finish and OnDone.
class GrowReactor final : public grpc::ServerUnaryReactor {
 public:
  GrowReactor(core::Executor& executor, Calls& calls, const grpc::CallbackServerContext& context,
              const v1::GrowRequest& request, v1::GrowResponse& response);

 private:
  // Outlives the reactor where work is still on its way to the core's thread. Used on that thread only.
  struct State {
    RequestId request;
    GrantId grant;  ///< once answered with one
    bool finished = false;
  };

  void finish(const Result<core::Grant, core::GrowFailure>& answer);
  void OnCancel() override;
  void OnDone() override;

  core::Executor& executor_;
  Calls& calls_;
  v1::GrowResponse& response_;
  std::shared_ptr<State> state_;
};

}  // namespace gpumem::rpc
