#include "daemon/kubernetes/broker_client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <cctype>

namespace gpumem::kubernetes {
namespace {

constexpr int kPatienceSeconds = 10;
constexpr Bytes kUnit = mebibytes(2);

std::shared_ptr<grpc::Channel> broker_channel(const std::filesystem::path& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // a change is made once
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);  // an upgraded broker is back soon
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(socket_target(socket), grpc::InsecureChannelCredentials(), arguments);
}

// By the steady clock.
void limit_time(grpc::ClientContext& context) {
  context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(kPatienceSeconds, GPR_TIMESPAN)));
}

Code code_of(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::INVALID_ARGUMENT: return Code::kInvalidArgument;
    case grpc::StatusCode::NOT_FOUND: return Code::kNotFound;
    case grpc::StatusCode::PERMISSION_DENIED: return Code::kPermissionDenied;
    case grpc::StatusCode::RESOURCE_EXHAUSTED: return Code::kResourceExhausted;
    case grpc::StatusCode::FAILED_PRECONDITION: return Code::kFailedPrecondition;
    case grpc::StatusCode::ABORTED: return Code::kAborted;
    case grpc::StatusCode::UNAUTHENTICATED: return Code::kUnauthenticated;
    default: return Code::kInternal;
  }
}

}  // namespace

std::string socket_target(const std::filesystem::path& path) {
  constexpr std::string_view kPlain = "/-._~+,=@";
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::error_code no_matter;
  std::string target = "unix:";
  const std::filesystem::path whole = std::filesystem::absolute(path, no_matter);
  for (const char letter : whole.native()) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0 || kPlain.find(letter) != std::string_view::npos)
      target += letter;
    else
      target += {'%', kHex[byte >> 4], kHex[byte & 15]};
  }
  return target;
}

std::string device_name(const std::string& uuid) {
  std::string name;
  for (const char letter : uuid) {
    const auto byte = static_cast<unsigned char>(letter);
    name += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '-';
  }
  return name.substr(0, 63);
}

BrokerClient::BrokerClient(const std::filesystem::path& socket) : socket_(socket) {
  const auto channel = broker_channel(socket);
  monitor_ = v1::Monitor::NewStub(channel);
  claims_ = v1::Claims::NewStub(channel);
}

Error BrokerClient::error_of(const grpc::Status& status) const {
  const std::string& words = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
      return {Code::kUnavailable,
              "the broker at " + socket_.string() + " does not answer; is gpumemd running? " + words};
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return {Code::kUnavailable, "the broker at " + socket_.string() + " has not answered in " +
                                      std::to_string(kPatienceSeconds) + " seconds"};
    case grpc::StatusCode::UNIMPLEMENTED:
      return {Code::kInternal,
              "the broker does not know claims of Kubernetes; gpumemd has to be of this version"};
    default: return {code_of(status.error_code()), "the broker refuses: " + words};
  }
}

Result<std::vector<Device>> BrokerClient::devices() {
  grpc::ClientContext context;
  limit_time(context);
  v1::GetStatusResponse response;
  if (const grpc::Status status = monitor_->GetStatus(&context, {}, &response); !status.ok())
    return error_of(status);
  std::vector<Device> devices;
  for (const v1::DeviceStatus& one : response.devices())
    devices.push_back(
        {one.uuid(), device_name(one.uuid()), one.name(), Bytes{one.pool()}.rounded_down(kUnit)});
  return devices;
}

Result<void> BrokerClient::prepare(const v1::Claim& claim) {
  grpc::ClientContext context;
  limit_time(context);
  v1::PrepareClaimRequest request;
  *request.mutable_claim() = claim;
  v1::PrepareClaimResponse response;
  const grpc::Status status = claims_->Prepare(&context, request, &response);
  return status.ok() ? Result<void>() : error_of(status);
}

Result<void> BrokerClient::unprepare(const std::string& uid) {
  grpc::ClientContext context;
  limit_time(context);
  v1::UnprepareClaimRequest request;
  request.set_uid(uid);
  v1::UnprepareClaimResponse response;
  const grpc::Status status = claims_->Unprepare(&context, request, &response);
  return status.ok() ? Result<void>() : error_of(status);
}

Result<std::vector<v1::Claim>> BrokerClient::claims() {
  grpc::ClientContext context;
  limit_time(context);
  v1::ListClaimsResponse response;
  if (const grpc::Status status = claims_->List(&context, {}, &response); !status.ok())
    return error_of(status);
  return std::vector<v1::Claim>(response.claims().begin(), response.claims().end());
}

}  // namespace gpumem::kubernetes
