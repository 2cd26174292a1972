#include "daemon/rpc/event_stream.h"

#include "base/text/time_format.h"
#include "daemon/core/words/refusals.h"
#include "daemon/rpc/calls.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/entitlement.h"

namespace gpumem::rpc {
namespace {

// A request for events: whose, and since when.
struct WatchRequest {
  std::optional<int> connection;
  std::string tenant;
  std::optional<core::WallTime> since;
};

Result<void> start(core::Executor& executor, const core::Broker& broker, SubscriberLimit& subscribers,
                   const WatchRequest& request, const std::shared_ptr<EventSubscriber>& subscriber) {
  auto caller = caller_of(executor, request.connection);
  if (!caller) return caller.error();
  if (!request.tenant.empty() && !may_follow(*caller, request.tenant, broker))
    return may_not_follow(*caller, request.tenant);
  auto subscription = subscribers.add(caller->peer.account(), caller->admin);
  if (!subscription)
    return core::refusal(core::Bound::kFollowers, "too many follow events already; end some of them");
  subscriber->begin(
      std::move(*caller),
      [&executor, connection = request.connection] { return caller_of(executor, connection); }, broker,
      std::move(subscription));
  executor.watch(subscriber, request.since);
  return {};
}

}  // namespace

void EventSubscriber::begin(core::Caller caller, FindCaller find_caller, const core::Broker& broker,
                            std::shared_ptr<void> subscription) {
  find_caller_ = std::move(find_caller);
  const MutexLock lock(mutex_);
  caller_ = std::move(caller);
  subscription_ = std::move(subscription);
  devices_ = core::uuids_of(broker.policy());
}

void EventSubscriber::refuse(const Error& error) {
  const MutexLock lock(mutex_);
  finish(to_status(error));
}

bool EventSubscriber::is_wanted(const std::string& tenant, const core::Broker& broker) {
  const auto decide = [&] {
    const bool named =
        filter_.tenant.empty() || tenant == filter_.tenant || broker.belongs(tenant, filter_.tenant);
    return named && may_follow(caller_, tenant, broker);
  };
  if (live_) return decide();  // the tree may have changed since
  const auto [known, added] = wanted_.try_emplace(tenant, false);
  if (added) known->second = decide();
  return known->second;
}

bool EventSubscriber::tell(const std::shared_ptr<const core::LoggedEvent>& event,
                           const core::Broker& broker) {
  const bool wanted = is_wanted(event->event.tenant, broker);
  const MutexLock lock(mutex_);
  if (stream_ == nullptr) return false;
  if (!wanted) return true;
  if (live_ && unread_.size() >= room_) {
    finish(
        to_status(Error{Code::kResourceExhausted, "events come faster than they are read here: more than " +
                                                      std::to_string(kMostUnreadEvents) +
                                                      " were waiting; follow again, since the last"}));
    return false;
  }
  unread_.push_back(event);
  write_next();
  return true;
}

bool EventSubscriber::caught_up() {
  live_ = true;
  wanted_.clear();
  const MutexLock lock(mutex_);
  room_ = unread_.size() + kMostUnreadEvents;
  if (!filter_.follow) end_ = grpc::Status::OK;
  write_next();
  return filter_.follow && stream_ != nullptr;
}

// Events that wait to be written are judged as well: an administrator was to be told of them.
bool EventSubscriber::judge(const core::Broker& broker) {
  auto caller = find_caller_();
  if (caller && !filter_.tenant.empty() && !may_follow(*caller, filter_.tenant, broker))
    caller = may_not_follow(*caller, filter_.tenant);
  const MutexLock lock(mutex_);
  if (stream_ == nullptr) return false;
  if (!caller) {
    finish(to_status(caller.error()));
    return false;
  }
  caller_ = std::move(*caller);
  std::erase_if(unread_, [&](const auto& event) { return !is_wanted(event->event.tenant, broker); });
  return true;
}

void EventSubscriber::closed() {
  const MutexLock lock(mutex_);
  end_ = to_status(Error{Code::kUnavailable, "the broker is stopping"});
  write_next();
}

void EventSubscriber::written(bool ok) {
  const MutexLock lock(mutex_);
  writing_ = false;
  if (!ok) return finish(grpc::Status::CANCELLED);
  write_next();
}

void EventSubscriber::cancelled() {
  const MutexLock lock(mutex_);
  finish(grpc::Status::CANCELLED);
}

void EventSubscriber::write_next() {
  if (stream_ == nullptr || writing_) return;
  if (unread_.empty()) {
    if (end_) finish(*end_);
    return;
  }
  const core::LoggedEvent& event = *unread_.front();
  message_ = to_proto(event, devices_);
  if (!may_read_words(caller_, event.event)) message_.clear_words();
  if (!may_read_closing(caller_, event.event)) message_.clear_closing();
  unread_.pop_front();
  writing_ = true;
  stream_->StartWrite(&message_);
}

// The stream may be gone as soon as it is finished.
void EventSubscriber::finish(const grpc::Status& status) {
  if (stream_ == nullptr) return;
  unread_.clear();
  std::exchange(stream_, nullptr)->Finish(status);
}

std::shared_ptr<void> SubscriberLimit::add(std::uint64_t account, bool is_admin) {
  const MutexLock lock(mutex_);
  const auto user = by_user_.try_emplace(account, 0).first;
  if ((count_ >= kMax && !is_admin) || user->second >= kMaxPerUser) {
    if (user->second == 0) by_user_.erase(user);
    return nullptr;
  }
  ++count_;
  ++user->second;
  return {static_cast<void*>(this),
          [subscribers = shared_from_this(), account](void*) { subscribers->remove(account); }};
}

void SubscriberLimit::remove(std::uint64_t account) {
  const MutexLock lock(mutex_);
  --count_;
  if (const auto user = by_user_.find(account); --user->second == 0) by_user_.erase(user);
}

EventStream::EventStream(core::Executor& executor, Calls& calls, std::shared_ptr<SubscriberLimit> subscribers,
                         const grpc::CallbackServerContext& context, const v1::WatchEventsRequest& request)
    : executor_(executor),
      calls_(calls),
      subscriber_(std::make_shared<EventSubscriber>(
          *this, EventSubscriber::Filter{request.tenant(), request.follow()})) {
  calls_.begin();
  WatchRequest watch{connection_of(context), request.tenant(), parse_rfc3339(request.since())};
  if (!request.since().empty() && !watch.since) {
    subscriber_->refuse(
        {Code::kInvalidArgument, "'since' is not an instant of RFC 3339, such as 2030-01-02T12:00:00Z"});
    return;
  }
  const auto connection = watch.connection;
  executor_.post_for(connection, [&executor, subscriber = subscriber_, subscribers = std::move(subscribers),
                                  watch = std::move(watch)](core::Broker& broker, core::TimePoint) {
    if (auto started = start(executor, broker, *subscribers, watch, subscriber); !started)
      subscriber->refuse(started.error());
  });
}

void EventStream::OnWriteDone(bool ok) { subscriber_->written(ok); }

void EventStream::OnCancel() { subscriber_->cancelled(); }

void EventStream::OnDone() {
  executor_.post([&executor = executor_, subscriber = std::move(subscriber_)](
                     core::Broker&, core::TimePoint) { executor.unwatch(*subscriber); });
  Calls& calls = calls_;
  delete this;
  calls.end();
}

}  // namespace gpumem::rpc
