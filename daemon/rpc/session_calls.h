#pragma once
#include <map>
#include <memory>

#include "daemon/core/broker/executor.h"
#include "daemon/core/broker/written_requests.h"
#include "daemon/rpc/session_writer.h"

namespace gpumem::rpc {

/// The session of one stream: what is asked on it, and what is answered. docs/grpc.md describes it.
/// Threads  the core's.
class SessionCalls final : public core::SessionHolder, public std::enable_shared_from_this<SessionCalls> {
 public:
  /// `executor` outlives it. `connection`  the stream's.
  SessionCalls(core::Executor& executor, std::shared_ptr<SessionWriter> writer, std::optional<int> connection)
      : executor_(executor), writer_(std::move(writer)), connection_(connection) {}
  std::optional<int> connection() const { return connection_; }

  /// Does what the request asks for. What breaks the protocol ends the stream.
  void receive(const v1::SessionRequest& request, core::Broker& broker, core::TimePoint now);
  /// The session had time enough to be opened.
  void expire();
  /// The client says no more: its session ends, and the stream when all answers are written.
  void leave();
  /// The stream is over, and with it the session.
  void end();

  void pressed(const BrokerFigures& figures) override;
  void closed(const Error& why) override;

 private:
  // One request on its way through.
  struct Call {
    std::uint64_t number = 0;  ///< the client's own
    core::Broker& broker;
    core::TimePoint now;
  };

  void open(const Call& call, const v1::OpenSessionRequest& request);
  void open_slice(const Call& call, const v1::OpenSliceRequest& request);
  void grow(const Call& call, const v1::GrowRequest& request);
  void cancel(const Call& call, const v1::CancelRequest& request);
  void give_back(const Call& call, const core::Return& request);
  void release_import(const Call& call, const core::ReleaseImport& request);
  void export_handle(const Call& call, const v1::ExportHandleRequest& request);
  void answer_exported(const Call& call, const core::HandleExported& exported);
  void export_fabric(const Call& call, const v1::ExportHandleRequest& request);
  void revoke_handle(const Call& call, const v1::RevokeHandleRequest& request);
  void publish(const Call& call, const v1::PublishRequest& request);
  void describe(const Call& call);
  void explain(const Call& call);
  void begin_job(const Call& call, const v1::BeginJobRequest& request);
  void reserve_for_job(const Call& call, const v1::ReserveForJobRequest& request);
  void describe_job(const Call& call);
  // `ask(answer)`  asks for it, and gives its number.
  template <class Ask>
  void begin_growth(const Call& call, Ask ask);
  void answer_growth(std::uint64_t number, const Result<core::Grant, core::GrowFailure>& answer);
  void tell_of_waiting(const Call& call);

  // Once everything that follows from it is done.
  void answer_later(const Call& call, v1::SessionAnswer answer);
  void answer_later(const Call& call, const Result<void>& done);
  void refuse(grpc::StatusCode code, const std::string& why);

  core::Executor& executor_;
  const std::shared_ptr<SessionWriter> writer_;
  const std::optional<int> connection_;
  SessionId session_;
  bool over_ = false;
  std::vector<std::string> devices_;            ///< their UUIDs
  std::map<std::uint64_t, RequestId> growths_;  ///< under way, by the client's number
};

}  // namespace gpumem::rpc
