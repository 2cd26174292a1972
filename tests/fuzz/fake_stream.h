#pragma once
#include <grpcpp/server_context.h>

#include <functional>
#include <utility>

#include "daemon/rpc/session_writer.h"
#include "tests/fuzz/require.h"

namespace gpumem::fuzz {

/// gRPC's part of a session's stream, without gRPC: what is written is kept until it is taken.
/// Invariant  one message is written at a time, and nothing after the end.
class FakeStream final : public grpc::ServerCallbackReaderWriter<v1::SessionRequest, v1::SessionAnswer> {
 public:
  FakeStream() { BindReactor(&reactor_); }

  rpc::SessionWriter::Stream& stream() { return reactor_; }
  grpc::CallbackServerContext& context() { return context_; }
  bool finished() const { return finished_; }
  /// What is being written; none: nothing is.
  const v1::SessionAnswer* take() { return std::exchange(written_, nullptr); }

  void Finish(grpc::Status) override {
    require(!finished_, "a stream is finished once");
    finished_ = true;
  }
  void Write(const v1::SessionAnswer* message, grpc::WriteOptions) override {
    require(!finished_, "nothing is written after the end");
    require(written_ == nullptr, "one answer is written at a time");
    written_ = message;
  }
  void SendInitialMetadata() override {}
  void Read(v1::SessionRequest*) override {}
  void WriteAndFinish(const v1::SessionAnswer* message, grpc::WriteOptions options,
                      grpc::Status status) override {
    Write(message, options);
    Finish(std::move(status));
  }

 private:
  struct Reactor final : rpc::SessionWriter::Stream {
    void OnDone() override {}
  };

  // grpc::internal::ServerCallbackCall
  void CallOnDone() override {}
  grpc::internal::ServerReactor* reactor() override { return &reactor_; }

  Reactor reactor_;
  grpc::CallbackServerContext context_;
  const v1::SessionAnswer* written_ = nullptr;
  bool finished_ = false;
};

}  // namespace gpumem::fuzz
