#include "daemon/kubernetes/claims/broker_client.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cctype>

#include "base/text/device_name.h"
#include "proto/channel.h"

namespace gpumem::kubernetes {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr Bytes kUnit = mebibytes(2);

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

std::string device_name(const std::string& uuid) {
  std::string name;
  for (const char letter : uuid) {
    const auto byte = static_cast<unsigned char>(letter);
    name += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '-';
  }
  return name.substr(0, 63);
}

v1::Claim claim_message(const std::string& uid, const std::string& space, const std::string& name) {
  v1::Claim claim;
  claim.set_uid(uid);
  claim.set_namespace_(space);
  claim.set_name(name);
  return claim;
}

void add_pod(v1::Claim& claim, const std::string& uid, const std::string& name) {
  v1::Pod* const pod = claim.add_pods();
  pod->set_uid(uid);
  pod->set_namespace_(claim.namespace_());
  pod->set_name(name);
}

bool are_equal(const v1::Claim& one, const v1::Claim& other) {
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_repeated_field_comparison(google::protobuf::util::MessageDifferencer::AS_SET);
  return differencer.Compare(one, other);
}

void add_amount(v1::Claim& claim, const std::string& device, Bytes guarantee, Bytes limit) {
  v1::ClaimAmount* const amount = claim.add_amounts();
  amount->set_device(device);
  amount->set_guarantee_bytes(guarantee.count);
  amount->set_limit_bytes(limit.count);
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
                                      std::to_string(kPatience.count()) + " seconds"};
    case grpc::StatusCode::UNIMPLEMENTED:
      return {Code::kInternal,
              "the broker does not know claims of Kubernetes; gpumemd has to be of this version"};
    default: return {code_of(status.error_code()), "the broker refuses: " + words};
  }
}

Result<std::vector<Device>> BrokerClient::devices() {
  grpc::ClientContext context;
  set_timeout(context, kPatience);
  v1::GetStatusResponse response;
  if (const grpc::Status status = monitor_->GetStatus(&context, {}, &response); !status.ok())
    return error_of(status);
  std::vector<Device> devices;
  for (const v1::DeviceStatus& one : response.devices()) {
    if (one.uuid() == kHostStore) continue;
    devices.push_back(
        {one.uuid(), device_name(one.uuid()), one.name(), Bytes{one.pool()}.rounded_down(kUnit)});
  }
  return devices;
}

Result<void> BrokerClient::prepare(const v1::Claim& claim) {
  grpc::ClientContext context;
  set_timeout(context, kPatience);
  v1::PrepareClaimRequest request;
  *request.mutable_claim() = claim;
  v1::PrepareClaimResponse response;
  const grpc::Status status = claims_->Prepare(&context, request, &response);
  return status.ok() ? Result<void>() : error_of(status);
}

Result<void> BrokerClient::unprepare(const std::string& uid) {
  grpc::ClientContext context;
  set_timeout(context, kPatience);
  v1::UnprepareClaimRequest request;
  request.set_uid(uid);
  v1::UnprepareClaimResponse response;
  const grpc::Status status = claims_->Unprepare(&context, request, &response);
  return status.ok() ? Result<void>() : error_of(status);
}

Result<std::vector<v1::Claim>> BrokerClient::claims() {
  grpc::ClientContext context;
  set_timeout(context, kPatience);
  v1::ListClaimsResponse response;
  if (const grpc::Status status = claims_->List(&context, {}, &response); !status.ok())
    return error_of(status);
  return std::vector<v1::Claim>(response.claims().begin(), response.claims().end());
}

}  // namespace gpumem::kubernetes
