#include "daemon/rpc/broker_service.h"

#include <memory>
#include <string>
#include <vector>

#include "base/printable.h"
#include "daemon/rpc/convert.h"
#include "proto/lane.h"

namespace gpumem::rpc {
namespace {

const Error kNoSession{
    Code::kUnauthenticated,
    "this call needs the token of a living session as metadata 'gpumem-session'; connect to the "
    "lane socket first (docs/architecture.md)"};

std::string token_of(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kSessionMetadataKey);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

// Has `act` done on the core's thread for the session that calls, and finishes the call with its result.
template <class Act>
grpc::ServerUnaryReactor* for_session(core::Gate& gate, grpc::CallbackServerContext* context, Act act) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  gate.post([&gate, reactor, token = token_of(*context), act = std::move(act)](core::Broker& broker,
                                                                               core::TimePoint now) {
    const auto session = gate.session_of(token);
    if (!session) return reactor->Finish(to_status(kNoSession));
    const Result<void> done = act(broker, *session, now);
    reactor->Finish(done ? grpc::Status::OK : to_status(done.error()));
  });
  return reactor;
}

// A growth may wait long and be cancelled meanwhile. gRPC keeps the reactor until Finish and OnDone.
class GrowReactor final : public grpc::ServerUnaryReactor {
 public:
  GrowReactor(core::Gate& gate, grpc::CallbackServerContext* context, const v1::GrowRequest& request,
              v1::GrowResponse* response)
      : gate_(gate), context_(context), response_(response), state_(std::make_shared<State>()) {
    gate_.post([this, state = state_, token = token_of(*context), slice = SliceId{request.slice()},
                bytes = Bytes{request.bytes()}, wait = wait_of(request)](core::Broker&, core::TimePoint) {
      const auto session = gate_.session_of(token);
      if (!session) return finish(core::GrowFailure{kNoSession, {}});
      const RequestId id =
          gate_.grow(*session, slice, bytes, wait, [this](const auto& answer) { finish(answer); });
      // The answer may have come already, and the reactor may be gone with it: only the state is safe here.
      state->request = id;
    });
  }

 private:
  // Outlives the reactor where work is still on its way to the core's thread. Used on that thread only.
  struct State {
    RequestId request;
    GrantId grant;  ///< once answered with one
    bool finished = false;
  };

  static core::Duration wait_of(const v1::GrowRequest& request) {
    constexpr std::uint64_t kLongest = 7ULL * 24 * 3600 * 1000;
    return std::chrono::milliseconds(std::min<std::uint64_t>(request.wait_ms(), kLongest));
  }

  void finish(const Result<core::Grant, core::GrowFailure>& answer) {
    state_->finished = true;
    if (answer) {
      state_->grant = answer->id;
      fill(*response_, *answer);
      return Finish(grpc::Status::OK);
    }
    const core::GrowFailure& failure = answer.error();
    if (failure.denial)
      context_->AddTrailingMetadata(kDenialMetadataKey, to_proto(*failure.denial).SerializeAsString());
    Finish(to_status(failure.error));
  }

  void OnCancel() override {
    gate_.post([&gate = gate_, state = state_](core::Broker& broker, core::TimePoint now) {
      if (!state->finished && state->request) gate.cancel(state->request);
      if (state->finished && state->grant) broker.abandon(state->grant, now);
    });
  }
  void OnDone() override { delete this; }

  core::Gate& gate_;
  grpc::CallbackServerContext* context_;
  v1::GrowResponse* response_;
  std::shared_ptr<State> state_;
};

}  // namespace

grpc::ServerUnaryReactor* BrokerService::OpenSlice(grpc::CallbackServerContext* context,
                                                   const v1::OpenSliceRequest* request,
                                                   v1::OpenSliceResponse* response) {
  return for_session(
      gate_, context,
      [request, response](core::Broker& broker, SessionId session, core::TimePoint) -> Result<void> {
        if (request->label().size() > kLabelBytes || !is_printable(request->label())) {
          return Error{Code::kInvalidArgument,
                       "the label is longer than " + std::to_string(kLabelBytes) + " bytes or not printable"};
        }
        // The answer names the device, and has to stay short enough to be sent.
        if (request->device().size() > kLabelBytes) {
          return Error{Code::kInvalidArgument, "the device's name is too long to be a UUID"};
        }
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
  return new GrowReactor(gate_, context, *request, response);
}

grpc::ServerUnaryReactor* BrokerService::Return(grpc::CallbackServerContext* context,
                                                const v1::ReturnRequest* request, v1::ReturnResponse*) {
  std::vector<LeaseId> leases;
  leases.reserve(static_cast<std::size_t>(request->leases_size()));
  for (const std::uint64_t lease : request->leases()) leases.push_back(LeaseId{lease});
  return for_session(gate_, context,
                     [slice = SliceId{request->slice()}, leases = std::move(leases)](
                         core::Broker& broker, SessionId session, core::TimePoint now) {
                       return broker.give_back(session, slice, leases, now);
                     });
}

grpc::ServerUnaryReactor* BrokerService::CloseSlice(grpc::CallbackServerContext* context,
                                                    const v1::CloseSliceRequest* request,
                                                    v1::CloseSliceResponse*) {
  return for_session(
      gate_, context,
      [slice = SliceId{request->slice()}](core::Broker& broker, SessionId session, core::TimePoint now) {
        return broker.close_slice(session, slice, now);
      });
}

grpc::ServerUnaryReactor* BrokerService::Ping(grpc::CallbackServerContext* context, const v1::PingRequest*,
                                              v1::PingResponse*) {
  return for_session(gate_, context,
                     [](core::Broker&, SessionId, core::TimePoint) -> Result<void> { return {}; });
}

}  // namespace gpumem::rpc
