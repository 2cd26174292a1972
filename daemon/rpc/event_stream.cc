#include "daemon/rpc/event_stream.h"

#include "base/rfc3339.h"
#include "daemon/core/refusals.h"
#include "daemon/rpc/callers.h"
#include "daemon/rpc/entitlement.h"
#include "daemon/rpc/follower.h"

namespace gpumem::rpc {
namespace {

// A request for events: whose, and since when among the kept ones.
struct Question {
  std::optional<int> connection;
  std::string tenant;
  std::optional<core::WallTime> since;
};

Result<void> start(core::Executor& executor, const core::Broker& broker, SubscriberLimit& subscribers,
                   const Question& question, const std::shared_ptr<Follower>& follower) {
  auto caller = caller_of(executor, question.connection);
  if (!caller) return caller.error();
  if (!question.tenant.empty() && !may_follow(*caller, question.tenant, broker))
    return may_not_follow(*caller, question.tenant);
  auto subscription = subscribers.add(caller->peer.account());
  if (!subscription)
    return core::refusal(core::Bound::kFollowers, "too many follow events already; end some of them");
  follower->begin(std::move(*caller), broker, std::move(subscription));
  executor.watch(follower, question.since);
  return {};
}

}  // namespace

EventStream::EventStream(core::Executor& executor, Calls& calls, std::shared_ptr<SubscriberLimit> subscribers,
                         const grpc::CallbackServerContext& context, const v1::WatchEventsRequest& request)
    : executor_(executor),
      calls_(calls),
      follower_(std::make_shared<Follower>(*this, Follower::Wish{request.tenant(), request.follow()})) {
  calls_.begin();
  Question question{connection_of(context), request.tenant(), parse_rfc3339(request.since())};
  if (!request.since().empty() && !question.since) {
    follower_->refuse(
        {Code::kInvalidArgument, "'since' is not an instant of RFC 3339, such as 2030-01-02T12:00:00Z"});
    return;
  }
  executor_.post([&executor, follower = follower_, subscribers = std::move(subscribers),
                  question = std::move(question)](core::Broker& broker, core::TimePoint) {
    if (auto started = start(executor, broker, *subscribers, question, follower); !started)
      follower->refuse(started.error());
  });
}

void EventStream::OnWriteDone(bool ok) { follower_->written(ok); }

void EventStream::OnCancel() { follower_->cancelled(); }

void EventStream::OnDone() {
  executor_.post([&executor = executor_, follower = std::move(follower_)](core::Broker&, core::TimePoint) {
    executor.unwatch(*follower);
  });
  Calls& calls = calls_;
  delete this;
  calls.end();
}

}  // namespace gpumem::rpc
