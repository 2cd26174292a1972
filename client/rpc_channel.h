#pragma once
#include <grpcpp/channel.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>

#include "base/mutex.h"
#include "client/status.h"
#include "gpumem/v1/broker.grpc.pb.h"

namespace gpumem::client {

/// Creates a separate gRPC channel to the broker's API socket. It connects at the first call.
std::shared_ptr<grpc::Channel> make_channel(const std::filesystem::path& socket);

/// Whether this process may use gRPC. A forked child may not if its parent had used it: both would share
/// gRPC's epoll set, and the child's events would reach the parent and crash it.
/// Errors  kFailedPrecondition: gRPC was started before the fork.
Result<void> check_rpc_usable();

/// Limits the call of `context` to `timeout`, by the steady clock.
void set_timeout(grpc::ClientContext& context, std::chrono::milliseconds timeout);

/// How to wait for a call.
struct CallTerms {
  std::chrono::milliseconds extra{};  ///< added to the usual timeout
  std::stop_token stop{};             ///< cancels the call
};

/// The calls of one session. The channel is made at the first one.
/// Threads  any.
class RpcChannel {
 public:
  /// `token`    the session's, carried by every call.
  /// `timeout`  for calls that do not wait for memory.
  RpcChannel(std::filesystem::path socket, std::string token, std::chrono::milliseconds timeout)
      : socket_(std::move(socket)), token_(std::move(token)), timeout_(timeout) {}

  template <class Request, class Response>
  using Method = grpc::Status (v1::Broker::Stub::*)(grpc::ClientContext*, const Request&, Response*);

  /// Calls `method` and waits for the answer.
  /// Errors  the broker's; kUnavailable: it is gone; kDeadlineExceeded without a Denial: it does not answer;
  ///         kCancelled: by `terms.stop`.
  template <class Request, class Response>
  Result<Response, GrowError> call(Method<Request, Response> method, const Request& request,
                                   const CallTerms& terms = {}) {
    grpc::ClientContext context;
    prepare(context, terms.extra);
    Response response;
    const std::stop_callback cancel(terms.stop, [&context] { context.TryCancel(); });
    const grpc::Status status = (stub().*method)(&context, request, &response);
    if (status.error_code() == grpc::StatusCode::CANCELLED && terms.stop.stop_requested()) {
      return GrowError(called_off());
    }
    if (!status.ok()) return call_error(status, socket_.native());
    return response;
  }

 private:
  v1::Broker::Stub& stub();
  void prepare(grpc::ClientContext& context, std::chrono::milliseconds extra) const;

  const std::filesystem::path socket_;
  const std::string token_;
  const std::chrono::milliseconds timeout_;
  Mutex mutex_;
  std::unique_ptr<v1::Broker::Stub> stub_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::client
