#include "daemon/rpc/broker_service.h"

#include "daemon/rpc/session_stream.h"

namespace gpumem::rpc {

grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionAnswer>* BrokerService::Session(
    grpc::CallbackServerContext* context) {
  return new SessionStream(executor_, calls_, *context, explanations_);
}

}  // namespace gpumem::rpc
