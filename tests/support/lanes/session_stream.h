#pragma once
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>

#include "gpumem/bytes.h"
#include "gpumem/v1/broker.grpc.pb.h"

namespace gpumem::test {

/// A gRPC connection of its own to the broker in `runtime_folder`.
std::shared_ptr<grpc::Channel> connect_to_api(const std::filesystem::path& runtime_folder);

/// The client's end of a session by gRPC, spoken by hand: nothing is checked before it is sent.
class SessionStream {
 public:
  explicit SessionStream(const std::filesystem::path& runtime_folder);
  explicit SessionStream(const std::shared_ptr<grpc::Channel>& channel);
  ~SessionStream();

  /// Sends the request with the next id, which it returns; 0: the stream is over.
  std::uint64_t send(v1::SessionRequest request);
  /// The next answer; an unset one if the stream is over.
  v1::SessionAnswer receive();
  /// The next answer to that request, `waiting` included; others before it are kept for receive().
  v1::SessionAnswer receive(std::uint64_t id);
  v1::SessionAnswer ask(v1::SessionRequest request) { return receive(send(std::move(request))); }

  /// Opens the session; keeps what it is told.
  const v1::OpenSessionResponse& open(const std::string& label = "stream");
  const v1::OpenSessionResponse& opened() const { return opened_; }
  /// A slice of the first device.
  std::uint64_t open_slice(Bytes limit = {});
  v1::SessionAnswer give_back(std::uint64_t slice, const v1::GrowResponse& granted);

  /// Closes this side, reads what comes, and tells how the stream ended.
  grpc::Status leave();
  /// Reads what comes, and tells how the stream ended.
  grpc::Status end();
  void cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::Broker::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionAnswer>> stream_;
  std::deque<v1::SessionAnswer> kept_;
  v1::OpenSessionResponse opened_;
  std::uint64_t last_ = 0;
  bool finished_ = false;
};

v1::SessionRequest growth(std::uint64_t slice, Bytes bytes, std::chrono::milliseconds wait = {});
v1::SessionRequest ping();

}  // namespace gpumem::test
