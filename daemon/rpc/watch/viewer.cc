#include "daemon/rpc/watch/viewer.h"

#include <utility>

#include "daemon/rpc/convert.h"

namespace gpumem::rpc {

bool Viewer::hold(std::shared_ptr<void> place) {
  const MutexLock lock(mutex_);
  if (stream_ == nullptr) return false;
  place_ = std::move(place);
  return true;
}

Viewer::State Viewer::state() {
  const MutexLock lock(mutex_);
  if (stream_ == nullptr) return State::kEnded;
  return writing_ || !unread_.empty() ? State::kBehind : State::kReady;
}

void Viewer::send(std::uint64_t number, const std::function<Messages(bool whole)>& messages_of) {
  const State state = this->state();
  if (state == State::kEnded) {
    if (++missed_ > 2 * kMostMissed) cut();
    return;
  }
  if (state == State::kBehind) {
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

void Viewer::cut() {
  const MutexLock lock(mutex_);
  if (context_ != nullptr) context_->TryCancel();
}

void Viewer::gone() {
  const MutexLock lock(mutex_);
  stream_ = nullptr;
  context_ = nullptr;
  place_.reset();
}

bool Viewer::is_gone() {
  const MutexLock lock(mutex_);
  return context_ == nullptr;
}

void Viewer::write_next() {
  if (stream_ == nullptr || writing_ || unread_.empty()) return;
  message_.Swap(&unread_.front());
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
