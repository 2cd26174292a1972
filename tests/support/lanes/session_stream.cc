#include "tests/support/lanes/session_stream.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "proto/lane.h"
#include "tests/support/eventually.h"

namespace gpumem::test {

std::shared_ptr<grpc::Channel> connect_to_api(const std::filesystem::path& runtime_folder) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  return grpc::CreateCustomChannel("unix:" + (runtime_folder / kApiSocketName).string(),
                                   grpc::InsecureChannelCredentials(), arguments);
}

SessionStream::SessionStream(const std::filesystem::path& runtime_folder)
    : SessionStream(connect_to_api(runtime_folder)) {}

SessionStream::SessionStream(const std::shared_ptr<grpc::Channel>& channel)
    : stub_(v1::Broker::NewStub(channel)) {
  context_.set_deadline(std::chrono::system_clock::now() + 3 * kPatience);
  stream_ = stub_->Session(&context_);
}

SessionStream::~SessionStream() {
  if (finished_) return;
  cancel();
  end();
}

std::uint64_t SessionStream::send(v1::SessionRequest request) {
  request.set_id(++last_);
  return stream_->Write(request) ? last_ : 0;
}

v1::SessionAnswer SessionStream::receive() {
  v1::SessionAnswer answer;
  if (kept_.empty()) {
    if (!stream_->Read(&answer)) answer.Clear();
    return answer;
  }
  answer = std::move(kept_.front());
  kept_.pop_front();
  return answer;
}

v1::SessionAnswer SessionStream::receive(std::uint64_t id) {
  const auto before = std::ranges::find(kept_, id, &v1::SessionAnswer::id);
  v1::SessionAnswer answer;
  if (before != kept_.end()) {
    answer = std::move(*before);
    kept_.erase(before);
    return answer;
  }
  while (stream_->Read(&answer)) {
    if (answer.id() == id) return answer;
    kept_.push_back(std::move(answer));
  }
  return {};
}

const v1::OpenSessionResponse& SessionStream::open(const std::string& label) {
  v1::SessionRequest request;
  request.mutable_open()->set_label(label);
  const v1::SessionAnswer answer = ask(std::move(request));
  EXPECT_TRUE(answer.has_opened()) << answer.DebugString();
  opened_ = answer.opened();
  return opened_;
}

std::uint64_t SessionStream::open_slice(Bytes limit) {
  v1::SessionRequest request;
  request.mutable_open_slice()->set_device(opened_.devices(0).uuid());
  request.mutable_open_slice()->set_limit(limit.count);
  const v1::SessionAnswer answer = ask(std::move(request));
  EXPECT_TRUE(answer.has_slice_opened()) << answer.DebugString();
  return answer.slice_opened().slice();
}

v1::SessionAnswer SessionStream::give_back(std::uint64_t slice, const v1::GrowResponse& granted) {
  v1::SessionRequest request;
  request.mutable_give_back()->set_slice(slice);
  for (const v1::Lease& lease : granted.leases()) request.mutable_give_back()->add_leases(lease.id());
  return ask(std::move(request));
}

grpc::Status SessionStream::leave() {
  stream_->WritesDone();
  return end();
}

grpc::Status SessionStream::end() {
  v1::SessionAnswer answer;
  while (stream_->Read(&answer)) {
  }
  finished_ = true;
  return stream_->Finish();
}

v1::SessionRequest growth(std::uint64_t slice, Bytes bytes, std::chrono::milliseconds wait) {
  v1::SessionRequest request;
  v1::GrowPart& part = *request.mutable_grow()->add_parts();
  part.set_slice(slice);
  part.set_bytes(bytes.count);
  request.mutable_grow()->set_wait_ms(static_cast<std::uint64_t>(wait.count()));
  return request;
}

v1::SessionRequest ping() {
  v1::SessionRequest request;
  request.mutable_ping();
  return request;
}

}  // namespace gpumem::test
