#include "daemon/rpc/broker_service.h"

#include <string>
#include <vector>

#include "daemon/api/calls.h"
#include "daemon/rpc/callers.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/grow_call.h"
#include "daemon/rpc/session_stream.h"

namespace gpumem::rpc {
namespace {

// Has `act` done on the core's thread for the session that calls, and finishes the call with its result.
template <class Act>
grpc::ServerUnaryReactor* for_session(core::Executor& executor, Calls& calls,
                                      const grpc::CallbackServerContext* context, Act act) {
  auto* const reactor = new Unary(calls);
  executor.post([&executor, reactor, token = token_of(*context), act = std::move(act)](core::Broker& broker,
                                                                                       core::TimePoint now) {
    const auto session = executor.session_of(token);
    if (!session) return reactor->Finish(to_status(no_session()));
    const Result<void> done = act(broker, *session, now);
    executor.after(
        [reactor, status = done ? grpc::Status::OK : to_status(done.error())] { reactor->Finish(status); });
  });
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* BrokerService::OpenSlice(grpc::CallbackServerContext* context,
                                                   const v1::OpenSliceRequest* request,
                                                   v1::OpenSliceResponse* response) {
  return for_session(executor_, calls_, context,
                     [this, request, response](core::Broker& broker, SessionId session,
                                               core::TimePoint now) -> Result<void> {
                       auto opened =
                           api::open_slice(executor_, broker, session,
                                           {request->device(), {request->limit()}, request->label()}, now);
                       if (!opened) return opened.error();
                       fill(*response, *opened);
                       return {};
                     });
}

grpc::ServerUnaryReactor* BrokerService::Grow(grpc::CallbackServerContext* context,
                                              const v1::GrowRequest* request, v1::GrowResponse* response) {
  return new GrowReactor(executor_, calls_, *context, *request, *response);
}

grpc::ServerUnaryReactor* BrokerService::Return(grpc::CallbackServerContext* context,
                                                const v1::ReturnRequest* request, v1::ReturnResponse*) {
  return for_session(
      executor_, calls_, context,
      [call = to_call(*request)](core::Broker& broker, SessionId session, core::TimePoint now) {
        return api::give_back(broker, session, call, now);
      });
}

grpc::ServerUnaryReactor* BrokerService::CloseSlice(grpc::CallbackServerContext* context,
                                                    const v1::CloseSliceRequest* request,
                                                    v1::CloseSliceResponse*) {
  return for_session(
      executor_, calls_, context,
      [slice = SliceId{request->slice()}](core::Broker& broker, SessionId session, core::TimePoint now) {
        return api::close_slice(broker, session, {slice}, now);
      });
}

grpc::ServerUnaryReactor* BrokerService::Charge(grpc::CallbackServerContext* context,
                                                const v1::ChargeRequest* request, v1::ChargeResponse*) {
  return for_session(executor_, calls_, context,
                     [request](core::Broker& broker, SessionId session, core::TimePoint now) {
                       return api::charge(broker, session, {request->device(), {request->bytes()}}, now);
                     });
}

grpc::ServerUnaryReactor* BrokerService::Ping(grpc::CallbackServerContext* context, const v1::PingRequest*,
                                              v1::PingResponse*) {
  return for_session(executor_, calls_, context,
                     [](core::Broker&, SessionId, core::TimePoint) -> Result<void> { return {}; });
}

grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionAnswer>* BrokerService::Session(
    grpc::CallbackServerContext* context) {
  return new SessionStream(executor_, calls_, *context, explanations_);
}

}  // namespace gpumem::rpc
