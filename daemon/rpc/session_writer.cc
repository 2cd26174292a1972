#include "daemon/rpc/session_writer.h"

#include <grpcpp/server_context.h>

#include <string>
#include <utility>

namespace gpumem::rpc {

void SessionWriter::write(v1::SessionAnswer answer) {
  const MutexLock lock(mutex_);
  if (stream_ == nullptr || end_) return;
  if (unread_.size() >= kMostUnread) {
    return abort({grpc::StatusCode::RESOURCE_EXHAUSTED,
                  "more than " + std::to_string(kMostUnread) + " answers of this session are unread"});
  }
  unread_.push_back(std::move(answer));
  write_next();
}

void SessionWriter::read() {
  const MutexLock lock(mutex_);
  request_ = v1::SessionRequest();  // the one before may be large, and the next one late
  wants_to_read_ = true;
  read_next();
}

void SessionWriter::read_next() {
  if (!wants_to_read_ || writing_ || !unread_.empty() || stream_ == nullptr || end_) return;
  wants_to_read_ = false;
  stream_->StartRead(&request_);
}

void SessionWriter::finish(const grpc::Status& status) {
  const MutexLock lock(mutex_);
  if (!end_) end_ = status;
  write_next();
}

void SessionWriter::cut(const grpc::Status& status) {
  const MutexLock lock(mutex_);
  abort(status);
}

void SessionWriter::written(bool ok) {
  const MutexLock lock(mutex_);
  writing_ = false;
  if (!ok) return end(grpc::Status::CANCELLED);
  write_next();
  read_next();
}

void SessionWriter::cancelled() {
  const MutexLock lock(mutex_);
  end(grpc::Status::CANCELLED);
}

void SessionWriter::write_next() {
  if (stream_ == nullptr || writing_) return;
  if (unread_.empty()) {
    if (end_) end(*end_);
    return;
  }
  message_ = std::move(unread_.front());
  unread_.pop_front();
  writing_ = true;
  stream_->StartWrite(&message_);
}

// gRPC finishes a stream only behind what was written before. Where nobody reads that, it has to be
// cancelled.
void SessionWriter::abort(const grpc::Status& status) {
  if (stream_ == nullptr) return;
  if (writing_) context_.TryCancel();
  end(status);
}

// The stream may be gone as soon as it is finished.
void SessionWriter::end(const grpc::Status& status) {
  if (stream_ == nullptr) return;
  unread_.clear();
  std::exchange(stream_, nullptr)->Finish(status);
}

}  // namespace gpumem::rpc
