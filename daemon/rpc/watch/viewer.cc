#include "daemon/rpc/watch/viewer.h"

#include <utility>

#include "daemon/rpc/convert.h"

namespace gpumem::rpc {

void Viewer::hold(std::shared_ptr<void> place) {
  const MutexLock lock(mutex_);
  place_ = std::move(place);
}

bool Viewer::is_ready() {
  const MutexLock lock(mutex_);
  return !writing_ && unread_.empty();
}

void Viewer::send(std::uint64_t number, const std::function<Messages(bool whole)>& messages_of) {
  if (!is_ready()) {
    if (++missed_ > kMostMissed)
      finish({Code::kResourceExhausted, "samples come faster than they are read here: " +
                                            std::to_string(kMostMissed) + " were missed; watch again"});
    return;
  }
  missed_ = 0;
  Messages messages = messages_of(seen_ == 0 || seen_ + 1 != number);
  seen_ = number;
  const MutexLock lock(mutex_);
  unread_ = std::move(messages);
  write_next();
}

void Viewer::finish(const Error& error) {
  const MutexLock lock(mutex_);
  end(to_status(error));
}

void Viewer::written(bool ok) {
  const MutexLock lock(mutex_);
  writing_ = false;
  if (!ok) return end(grpc::Status::CANCELLED);
  write_next();
}

void Viewer::cancelled() {
  const MutexLock lock(mutex_);
  end(grpc::Status::CANCELLED);
}

void Viewer::write_next() {
  if (stream_ == nullptr || writing_ || unread_.empty()) return;
  message_ = std::move(unread_.front());
  unread_.pop_front();
  writing_ = true;
  stream_->StartWrite(&message_);
}

// The stream may be gone as soon as it is finished.
void Viewer::end(const grpc::Status& status) {
  unread_.clear();
  if (stream_ != nullptr) std::exchange(stream_, nullptr)->Finish(status);
}

}  // namespace gpumem::rpc
