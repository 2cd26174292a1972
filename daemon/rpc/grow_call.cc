#include "daemon/rpc/grow_call.h"

#include <algorithm>
#include <vector>

#include "daemon/rpc/callers.h"
#include "daemon/rpc/convert.h"
#include "shm/pages.h"

namespace gpumem::rpc {
namespace {

core::Duration wait_of(const v1::GrowRequest& request) {
  constexpr std::uint64_t kLongest = 7ULL * 24 * 3600 * 1000;
  return std::chrono::milliseconds(std::min<std::uint64_t>(request.wait_ms(), kLongest));
}

Result<std::vector<core::Broker::Part>> parts_of(const v1::GrowRequest& request) {
  if (request.parts().empty()) return Error{Code::kInvalidArgument, "a growth needs at least one part"};
  if (static_cast<std::size_t>(request.parts_size()) > kMaxDevices) {
    return Error{Code::kInvalidArgument, "a growth has one part for each device, " +
                                             std::to_string(kMaxDevices) + " at most, not " +
                                             std::to_string(request.parts_size())};
  }
  std::vector<core::Broker::Part> parts;
  for (const v1::GrowPart& part : request.parts())
    parts.push_back(
        {SliceId{part.slice()}, Bytes{part.bytes()}, Bytes{part.min_bytes()}, Bytes{part.largest_extent()}});
  return parts;
}

}  // namespace

GrowReactor::GrowReactor(core::Executor& executor, Calls& calls, const grpc::CallbackServerContext& context,
                         const v1::GrowRequest& request, v1::GrowResponse& response)
    : executor_(executor), calls_(calls), response_(response), state_(std::make_shared<State>()) {
  calls_.begin();
  executor_.post([this, state = state_, token = token_of(context), parts = parts_of(request),
                  wait = wait_of(request)](core::Broker&, core::TimePoint) {
    const auto session = executor_.session_of(token);
    if (!session) return finish(core::GrowFailure{no_session(), {}});
    if (!parts) return finish(core::GrowFailure{parts.error(), {}});
    const RequestId id =
        executor_.grow(*session, *parts, wait, [this](const auto& answer) { finish(answer); });
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
