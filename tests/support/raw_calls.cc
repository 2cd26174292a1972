#include "tests/support/raw_calls.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <gtest/gtest.h>

#include "gpumem/v1/status.pb.h"
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

v1::GrowRequest grow_request(std::uint64_t slice, std::uint64_t bytes, std::uint64_t wait_ms) {
  v1::GrowRequest request;
  v1::GrowPart& part = *request.add_parts();
  part.set_slice(slice);
  part.set_bytes(bytes);
  request.set_wait_ms(wait_ms);
  return request;
}

RawCalls::RawCalls(const std::filesystem::path& runtime_folder, std::optional<std::string> token)
    : token_(std::move(token)), stub_(v1::Broker::NewStub(connect_to_api(runtime_folder))) {}

void RawCalls::prepare(grpc::ClientContext& context) const {
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  if (token_) context.AddMetadata(kSessionMetadataKey, *token_);
}

grpc::Status RawCalls::open_slice(const std::string& device, std::uint64_t limit,
                                  v1::OpenSliceResponse* response, const std::string& label) {
  grpc::ClientContext context;
  prepare(context);
  v1::OpenSliceRequest request;
  request.set_device(device);
  request.set_limit(limit);
  request.set_label(label);
  return stub_->OpenSlice(&context, request, response);
}

grpc::Status RawCalls::grow(std::uint64_t slice, std::uint64_t bytes, std::uint64_t wait_ms,
                            v1::GrowResponse* response, v1::Denial* denial) {
  grpc::ClientContext context;
  prepare(context);
  const grpc::Status status = stub_->Grow(&context, grow_request(slice, bytes, wait_ms), response);
  v1::Status details;
  if (denial == nullptr || !details.ParseFromString(status.error_details())) return status;
  for (const auto& detail : details.details()) EXPECT_TRUE(detail.UnpackTo(denial));
  return status;
}

grpc::Status RawCalls::give_back(std::uint64_t slice, const std::vector<std::uint64_t>& leases) {
  grpc::ClientContext context;
  prepare(context);
  v1::ReturnRequest request;
  request.set_slice(slice);
  request.mutable_leases()->Add(leases.begin(), leases.end());
  v1::ReturnResponse response;
  return stub_->Return(&context, request, &response);
}

grpc::Status RawCalls::close_slice(std::uint64_t slice) {
  grpc::ClientContext context;
  prepare(context);
  v1::CloseSliceRequest request;
  request.set_slice(slice);
  v1::CloseSliceResponse response;
  return stub_->CloseSlice(&context, request, &response);
}

grpc::Status RawCalls::ping() {
  grpc::ClientContext context;
  prepare(context);
  v1::PingResponse response;
  return stub_->Ping(&context, {}, &response);
}

RawSession::RawSession(const std::filesystem::path& runtime_folder, const std::string& label)
    : lane(runtime_folder), welcome(lane.greet(label)), calls(runtime_folder, welcome.token()) {}

std::uint64_t RawSession::open_slice(std::uint64_t limit) {
  v1::OpenSliceResponse opened;
  const grpc::Status status = calls.open_slice(welcome.devices(0), limit, &opened);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return opened.slice();
}

v1::GrowResponse RawSession::grow(std::uint64_t slice, std::uint64_t bytes) {
  v1::GrowResponse granted;
  const grpc::Status status = calls.grow(slice, bytes, 0, &granted);
  EXPECT_TRUE(status.ok()) << status.error_message();
  for (int offered = 0; offered < granted.leases_size();) {
    const v1::ToClient message = lane.receive();
    if (!message.has_offer()) {
      ADD_FAILURE() << "no offer";
      break;
    }
    EXPECT_EQ(message.offer().grant(), granted.grant());
    offered += message.offer().leases_size();
  }
  return granted;
}

}  // namespace gpumem::test
