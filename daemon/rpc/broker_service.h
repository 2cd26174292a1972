#pragma once
#include <memory>

#include "daemon/api/explanation_limit.h"
#include "daemon/core/executor.h"
#include "daemon/rpc/calls.h"
#include "gpumem/v1/broker.grpc.pb.h"

namespace gpumem::rpc {

/// gpumem.v1.Broker: what clients ask. Reactors validate, post to the core's thread and are finished there.
class BrokerService final : public v1::Broker::CallbackService {
 public:
  BrokerService(core::Executor& executor, Calls& calls, std::shared_ptr<api::ExplanationLimit> explanations)
      : executor_(executor), calls_(calls), explanations_(std::move(explanations)) {}

  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionAnswer>* Session(
      grpc::CallbackServerContext* context) override;

 private:
  core::Executor& executor_;
  Calls& calls_;
  std::shared_ptr<api::ExplanationLimit> explanations_;
};

}  // namespace gpumem::rpc
