#pragma once
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "gpumem/result.h"

namespace gpumem::rpc {

/// A viewer of samples by a stream. While it reads one sample, it misses those that are made meanwhile.
/// Invariant  the stream is finished once; nothing is written after that.
/// Threads    any; send(): one.
class Viewer {
 public:
  using Stream = grpc::ServerWriteReactor<grpc::ByteBuffer>;
  using Messages = std::deque<grpc::ByteBuffer>;
  /// A viewer that misses more samples in a row is told that it is cut off; after as many more it is.
  static constexpr int kMostMissed = 10;

  /// `context`     of the call, until gone().
  /// `connection`  the caller's; none: it is gone.
  Viewer(Stream& stream, const grpc::CallbackServerContext& context, std::optional<int> connection)
      : connection_(connection), stream_(&stream), context_(&context) {}

  std::optional<int> connection() const { return connection_; }
  /// Sets what the viewer holds as long as it is there. False: its call has ended.
  bool hold(std::shared_ptr<void> place);
  /// Sends the sample of that number, or misses it. `messages_of`  all of the sample, or the changes since
  /// the sample before.
  void send(std::uint64_t number, const std::function<Messages(bool whole)>& messages_of);
  void finish(const Error& error);

  /// Called by the stream: its last write is done; the call is cancelled; the call is over.
  void written(bool ok);
  void cancelled();
  void gone();
  bool is_gone();

 private:
  enum class State { kReady, kBehind, kEnded };
  State state();
  void cut();
  void write_next() GPUMEM_REQUIRES(mutex_);
  void end(const grpc::Status& status) GPUMEM_REQUIRES(mutex_);

  const std::optional<int> connection_;
  std::uint64_t seen_ = 0;  ///< number of the sample that it was sent last; of the thread of send()
  int missed_ = 0;          ///< in a row; likewise
  Mutex mutex_;
  Stream* stream_ GPUMEM_GUARDED_BY(mutex_);                              ///< until it is finished
  const grpc::CallbackServerContext* context_ GPUMEM_GUARDED_BY(mutex_);  ///< until it is over
  std::shared_ptr<void> place_ GPUMEM_GUARDED_BY(mutex_);
  Messages unread_ GPUMEM_GUARDED_BY(mutex_);  ///< of one sample
  bool writing_ GPUMEM_GUARDED_BY(mutex_) = false;
  grpc::ByteBuffer message_;  ///< being written
};

}  // namespace gpumem::rpc
