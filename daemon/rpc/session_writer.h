#pragma once
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <optional>

#include "base/mutex.h"
#include "gpumem/v1/broker.pb.h"

namespace gpumem::rpc {

/// Starts the operations on a session's stream: answers as fast as they are read, the next request, the end.
/// A client that does not read its answers is not read, either, so its requests cost the broker no memory and
/// delay nobody else. Invariant  the stream is finished once; nothing is started on it after that. Threads
/// any.
class SessionWriter {
 public:
  using Stream = grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionAnswer>;
  /// Answers that may be unread before the stream is cut off.
  static constexpr std::size_t kMostUnread = 256;

  SessionWriter(Stream& stream, grpc::CallbackServerContext& context) : stream_(&stream), context_(context) {}

  /// Writes `answer` after those before it. With too many of them unread the stream is cut off.
  void write(v1::SessionAnswer answer);
  /// Has the next request read into request(), once every answer so far is on its way.
  void read();
  /// The request that was read last; nobody's between read() and the stream's word that it is there.
  const v1::SessionRequest& request() const { return request_; }
  /// Ends the stream when all answers are written.
  void finish(const grpc::Status& status);
  /// Ends it now, whether or not anybody reads.
  void cut(const grpc::Status& status);

  /// The stream's own: its last write is done; the call is over.
  void written(bool ok);
  void cancelled();

 private:
  void write_next() GPUMEM_REQUIRES(mutex_);
  void read_next() GPUMEM_REQUIRES(mutex_);
  void end(const grpc::Status& status) GPUMEM_REQUIRES(mutex_);
  void abort(const grpc::Status& status) GPUMEM_REQUIRES(mutex_);

  Mutex mutex_;
  Stream* stream_ GPUMEM_GUARDED_BY(mutex_);                        ///< until it is finished
  grpc::CallbackServerContext& context_ GPUMEM_GUARDED_BY(mutex_);  ///< as long as `stream_`
  std::deque<v1::SessionAnswer> unread_ GPUMEM_GUARDED_BY(mutex_);
  std::optional<grpc::Status> end_ GPUMEM_GUARDED_BY(mutex_);  ///< when all is written
  bool writing_ GPUMEM_GUARDED_BY(mutex_) = false;
  bool wants_to_read_ GPUMEM_GUARDED_BY(mutex_) = false;
  v1::SessionAnswer message_;  ///< being written
  v1::SessionRequest request_;
};

}  // namespace gpumem::rpc
