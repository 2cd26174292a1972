#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/system/unique_fd.h"
#include "client/cli/monitor/monitor.h"
#include "gpumem/result.h"
#include "gpumem/v1/broker.grpc.pb.h"

namespace gpumem::cli {

/// A session by gRPC. It lives as long as this object, the stream and the broker.
/// Threads  any. One of its own reads the stream.
class BrokerSession {
 public:
  /// Opens a session of this process. Errors  as client::connect_error, and the broker's own.
  static Result<std::unique_ptr<BrokerSession>> open(const std::filesystem::path& runtime_folder,
                                                     const std::string& label);
  /// Opens a session over `connection`, a socket that is connected to the broker's. The session belongs to
  /// the process that connected it.
  static Result<std::unique_ptr<BrokerSession>> open_over(UniqueFd connection,
                                                          const std::filesystem::path& runtime_folder,
                                                          const std::string& label);
  ~BrokerSession();
  BrokerSession(const BrokerSession&) = delete;
  BrokerSession& operator=(const BrokerSession&) = delete;

  const v1::OpenSessionResponse& opened() const { return opened_; }

  /// Sends `request` under a new id, which it answers.
  std::uint64_t send(v1::SessionRequest request);
  /// The answer to `request`.
  /// Errors  what the broker answers; kDeadlineExceeded (nothing for ten seconds), kUnavailable (it is over).
  Result<v1::SessionAnswer> ask(v1::SessionRequest request);
  /// The latest pressure that has come since the last call.
  std::optional<v1::Pressure> take_pressure();
  /// Why the session is over, if it is.
  std::optional<Error> over() const;

  /// Becomes readable when an answer or pressure comes, or the session ends; clear() makes it wait again.
  int readable() const { return news_.get(); }
  void clear() const;

 private:
  BrokerSession(std::filesystem::path socket, const std::shared_ptr<grpc::Channel>& channel);
  static Result<std::unique_ptr<BrokerSession>> begin(std::unique_ptr<BrokerSession> session,
                                                      const std::string& label);
  void read();
  void keep(v1::SessionAnswer answer);
  void tell();

  const std::filesystem::path socket_;
  std::unique_ptr<v1::Broker::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionAnswer>> stream_;
  v1::OpenSessionResponse opened_;
  UniqueFd news_;

  std::mutex writing_;  // one write at a time
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, v1::SessionAnswer> answers_;
  std::optional<v1::Pressure> pressure_;
  std::optional<Error> over_;
  std::thread reader_;
};

/// The error that the broker has answered.
Error error_of(const v1::FailedResponse& failed);

/// Lets a command be the process of a session that this process speaks for. The kernel tells the broker who
/// has connected a socket: the new process connects it before it becomes the command, and hands it over.
class SessionHandover {
 public:
  /// `program`  what the session's process is to be called. Errors  as client::check_owner, errno's.
  static Result<SessionHandover> make(const std::filesystem::path& runtime_folder,
                                      const std::string& program);

  /// In the new process: connects, hands over, and waits. False: it must not become the command.
  /// Nothing but system calls, as long as the other process is there.
  bool in_command() const;
  /// The socket that the new process has connected. Errors  as client::connect_error.   Blocks.
  Result<UniqueFd> receive();
  /// Whether the new process becomes the command.
  void release(bool begins);

 private:
  SessionHandover() = default;

  std::filesystem::path socket_;
  std::array<char, 16> name_{};  // as much as the kernel keeps
  UniqueFd own_, theirs_;
};

}  // namespace gpumem::cli
