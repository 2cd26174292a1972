#include "daemon/rpc/grow_call.h"

#include "daemon/api/calls.h"
#include "daemon/rpc/callers.h"
#include "daemon/rpc/convert.h"

namespace gpumem::rpc {
GrowReactor::GrowReactor(core::Executor& executor, Calls& calls, const grpc::CallbackServerContext& context,
                         const v1::GrowRequest& request, v1::GrowResponse& response)
    : executor_(executor), calls_(calls), response_(response), state_(std::make_shared<State>()) {
  calls_.begin();
  executor_.post([this, state = state_, token = token_of(context), call = to_call(request)](core::Broker&,
                                                                                            core::TimePoint) {
    const auto session = executor_.session_of(token);
    if (!session) return finish(core::GrowFailure{no_session(), {}});
    const RequestId id = api::grow(executor_, *session, call, [this](const auto& answer) { finish(answer); });
    // The answer may have come already, and the reactor may be gone with it: only the state is safe here.
    state->request = id;
  });
}

void GrowReactor::finish(const Result<core::Grant, core::GrowFailure>& answer) {
  state_->finished = true;
  if (answer) {
    state_->grant = answer->id;
    fill(response_, *answer);
    return Finish(grpc::Status::OK);
  }
  Finish(to_status(answer.error()));
}

void GrowReactor::OnCancel() {
  executor_.post([&executor = executor_, state = state_](core::Broker& broker, core::TimePoint now) {
    if (!state->finished && state->request) executor.cancel(state->request);
    if (state->finished && state->grant) broker.abandon(state->grant, now);
  });
}

void GrowReactor::OnDone() {
  Calls& calls = calls_;
  delete this;
  calls.end();
}

}  // namespace gpumem::rpc
