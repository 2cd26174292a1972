#include "daemon/rpc/broker_service.h"

#include <string>
#include <vector>

#include "base/printable.h"
#include "daemon/rpc/callers.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/grow_call.h"
#include "proto/lane.h"

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

// The answer names the device, and has to stay short enough to be sent.
Result<void> check_device_name(const std::string& device) {
  if (device.size() <= kLabelBytes) return {};
  return Error{Code::kInvalidArgument, "the device's name is too long to be a UUID"};
}

}  // namespace

grpc::ServerUnaryReactor* BrokerService::OpenSlice(grpc::CallbackServerContext* context,
                                                   const v1::OpenSliceRequest* request,
                                                   v1::OpenSliceResponse* response) {
  return for_session(
      executor_, calls_, context,
      [request, response](core::Broker& broker, SessionId session, core::TimePoint) -> Result<void> {
        if (request->label().size() > kLabelBytes || !is_printable(request->label())) {
          return Error{Code::kInvalidArgument,
                       "the label is longer than " + std::to_string(kLabelBytes) + " bytes or not printable"};
        }
        if (auto named = check_device_name(request->device()); !named) return named;
        auto slice = broker.open_slice(session, request->device(), {request->limit()}, request->label());
        if (!slice) return slice.error();
        response->set_slice(slice->id.value);
        response->set_limit(slice->limit.count);
        response->set_granularity(broker.policy().devices[slice->device].granularity.count);
        return {};
      });
}

grpc::ServerUnaryReactor* BrokerService::Grow(grpc::CallbackServerContext* context,
                                              const v1::GrowRequest* request, v1::GrowResponse* response) {
  return new GrowReactor(executor_, calls_, *context, *request, *response);
}

grpc::ServerUnaryReactor* BrokerService::Return(grpc::CallbackServerContext* context,
                                                const v1::ReturnRequest* request, v1::ReturnResponse*) {
  std::vector<LeaseId> leases;
  leases.reserve(static_cast<std::size_t>(request->leases_size()));
  for (const std::uint64_t lease : request->leases()) leases.push_back(LeaseId{lease});
  return for_session(executor_, calls_, context,
                     [slice = SliceId{request->slice()}, leases = std::move(leases)](
                         core::Broker& broker, SessionId session, core::TimePoint now) {
                       return broker.give_back(session, slice, leases, now);
                     });
}

grpc::ServerUnaryReactor* BrokerService::CloseSlice(grpc::CallbackServerContext* context,
                                                    const v1::CloseSliceRequest* request,
                                                    v1::CloseSliceResponse*) {
  return for_session(
      executor_, calls_, context,
      [slice = SliceId{request->slice()}](core::Broker& broker, SessionId session, core::TimePoint now) {
        return broker.close_slice(session, slice, now);
      });
}

grpc::ServerUnaryReactor* BrokerService::Charge(grpc::CallbackServerContext* context,
                                                const v1::ChargeRequest* request, v1::ChargeResponse*) {
  return for_session(executor_, calls_, context,
                     [request](core::Broker& broker, SessionId session, core::TimePoint now) -> Result<void> {
                       if (auto named = check_device_name(request->device()); !named) return named;
                       return broker.charge(session, request->device(), {request->bytes()}, now);
                     });
}

grpc::ServerUnaryReactor* BrokerService::Ping(grpc::CallbackServerContext* context, const v1::PingRequest*,
                                              v1::PingResponse*) {
  return for_session(executor_, calls_, context,
                     [](core::Broker&, SessionId, core::TimePoint) -> Result<void> { return {}; });
}

}  // namespace gpumem::rpc
