#pragma once
#include <grpcpp/alarm.h>
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "daemon/core/broker/executor.h"
#include "daemon/rpc/calls.h"
#include "daemon/rpc/session_calls.h"
#include "gpumem/v1/broker.grpc.pb.h"

namespace gpumem::rpc {

/// gpumem.v1.Broker: what clients ask. Reactors validate, post to the core's thread and are finished there.
class BrokerService final : public v1::Broker::CallbackService {
 public:
  BrokerService(core::Executor& executor, Calls& calls) : executor_(executor), calls_(calls) {}

  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionAnswer>* Session(
      grpc::CallbackServerContext* context) override;

 private:
  core::Executor& executor_;
  Calls& calls_;
};

/// One Broker.Session. gRPC keeps it until OnDone; what the core's thread has of it is the SessionCalls.
/// Requests are read one by one, each after the one before has been understood: so many wait in no queue
/// here.
/// A stream that opens no session in time is ended.
class SessionStream final : public grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionAnswer> {
 public:
  SessionStream(core::Executor& executor, Calls& calls, grpc::CallbackServerContext& context);

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  core::Executor& executor_;
  Calls& calls_;
  std::shared_ptr<SessionWriter> writer_;
  std::shared_ptr<SessionCalls> session_;
  grpc::Alarm opening_;
};

}  // namespace gpumem::rpc
