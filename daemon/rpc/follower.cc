#include "daemon/rpc/follower.h"

#include "daemon/rpc/convert.h"
#include "daemon/rpc/entitlement.h"
#include "daemon/rpc/event_stream.h"

namespace gpumem::rpc {

void Follower::begin(core::Caller caller, const core::Broker& broker, std::shared_ptr<void> subscription) {
  caller_ = std::move(caller);
  const MutexLock lock(mutex_);
  subscription_ = std::move(subscription);
  devices_ = core::uuids_of(broker.policy());
}

void Follower::refuse(const Error& error) {
  const MutexLock lock(mutex_);
  finish(to_status(error));
}

bool Follower::is_wanted(const std::string& tenant, const core::Broker& broker) {
  const auto decide = [&] {
    const bool named = wish_.tenant.empty() || tenant == wish_.tenant || broker.belongs(tenant, wish_.tenant);
    return named && may_follow(caller_, tenant, broker);
  };
  if (live_) return decide();  // the tree may have changed since
  const auto [known, added] = wanted_.try_emplace(tenant, false);
  if (added) known->second = decide();
  return known->second;
}

bool Follower::tell(const std::shared_ptr<const core::LoggedEvent>& event, const core::Broker& broker) {
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

bool Follower::caught_up() {
  live_ = true;
  wanted_.clear();
  const MutexLock lock(mutex_);
  room_ = unread_.size() + kMostUnreadEvents;
  if (!wish_.follow) end_ = grpc::Status::OK;
  write_next();
  return wish_.follow && stream_ != nullptr;
}

void Follower::closed() {
  const MutexLock lock(mutex_);
  end_ = to_status(Error{Code::kUnavailable, "the broker is stopping"});
  write_next();
}

void Follower::written(bool ok) {
  const MutexLock lock(mutex_);
  writing_ = false;
  if (!ok) return finish(grpc::Status::CANCELLED);
  write_next();
}

void Follower::cancelled() {
  const MutexLock lock(mutex_);
  finish(grpc::Status::CANCELLED);
}

void Follower::write_next() {
  if (stream_ == nullptr || writing_) return;
  if (unread_.empty()) {
    if (end_) finish(*end_);
    return;
  }
  const core::LoggedEvent& event = *unread_.front();
  message_ = to_proto(event, devices_);
  if (!may_read_words(caller_, event.event)) message_.clear_words();
  unread_.pop_front();
  writing_ = true;
  stream_->StartWrite(&message_);
}

// The stream may be gone as soon as it is finished.
void Follower::finish(const grpc::Status& status) {
  if (stream_ == nullptr) return;
  unread_.clear();
  std::exchange(stream_, nullptr)->Finish(status);
}

}  // namespace gpumem::rpc
