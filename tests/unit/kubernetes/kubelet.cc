#include "tests/unit/kubernetes/kubelet.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <future>

#include "kubelet/dra_health.grpc.pb.h"
#include "tests/support/eventually.h"

namespace gpumem::kubernetes::test {
namespace {

constexpr int kSeconds = 45;  // defaultClientCallTimeout of the kubelet

std::shared_ptr<grpc::Channel> dial(const std::filesystem::path& socket) {
  return grpc::CreateChannel("unix:" + socket.string(), grpc::InsecureChannelCredentials());
}

grpc::Status call_raw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                      const std::string& request, std::string& response) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(kSeconds, GPR_TIMESPAN)));
  const grpc::Slice slice(request);
  const grpc::ByteBuffer sent(&slice, 1);
  grpc::ByteBuffer received;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, method, {}, &sent, &received,
                 [&](grpc::Status status) { done.set_value(std::move(status)); });
  grpc::Status status = done.get_future().get();
  std::vector<grpc::Slice> slices;
  if (status.ok() && received.Dump(&slices).ok()) {
    response.clear();
    for (const grpc::Slice& one : slices)
      response.append(reinterpret_cast<const char*>(one.begin()), one.size());
  }
  return status;
}

// NodePrepareResourcesRequest and NodeUnprepareResourcesRequest: 1: Claim{1: namespace, 2: uid, 3: name}.
std::string claims_message(const std::vector<ClaimReference>& claims) {
  const auto part = [](char tag, const std::string& text) {
    return std::string{tag, static_cast<char>(text.size())} + text;
  };
  std::string message;
  for (const ClaimReference& one : claims)
    message += part(0x0a, part(0x0a, one.space) + part(0x12, one.uid) + part(0x1a, one.name));
  return message;
}

}  // namespace

std::unique_ptr<Kubelet> Kubelet::register_driver(const std::filesystem::path& registry_folder,
                                                  const std::string& refusal) {
  for (const auto& entry : std::filesystem::directory_iterator(registry_folder)) {
    auto kubelet = std::make_unique<Kubelet>();
    const auto channel = dial(entry.path());
    std::string answer;
    if (!call_raw(channel, "/pluginregistration.Registration/GetInfo", {}, answer).ok()) return nullptr;
    kubelet->info_.ParseFromString(answer);
    pluginregistration::RegistrationStatus status;
    status.set_plugin_registered(refusal.empty());
    status.set_error(refusal);
    const std::string words = status.SerializeAsString();
    if (!call_raw(channel, "/pluginregistration.Registration/NotifyRegistrationStatus", words, answer).ok())
      return nullptr;
    kubelet->channel_ = dial(kubelet->info_.endpoint());
    return kubelet;
  }
  return nullptr;
}

grpc::Status Kubelet::call(const std::string& method, const std::string& request, std::string& response) {
  return call_raw(channel_, method, request, response);
}

void Kubelet::give_up(const ClaimReference& claim, const std::function<bool()>& is_under_way) {
  grpc::GenericStub stub(channel_);
  grpc::ClientContext context;
  const grpc::Slice slice(claims_message({claim}));
  const grpc::ByteBuffer sent(&slice, 1);
  grpc::ByteBuffer received;
  std::promise<void> done;
  stub.UnaryCall(&context, "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", {}, &sent,
                 &received, [&](const grpc::Status&) { done.set_value(); });
  gpumem::test::eventually(is_under_way);
  context.TryCancel();
  done.get_future().wait();
  unprepare({});  // on the same connection, so it is answered after the news
}

grpc::Status Kubelet::watch_health(
    const std::function<bool(const v1alpha1::NodeWatchResourcesResponse&)>& wants_more) {
  const auto stub = v1alpha1::DRAResourceHealth::NewStub(channel_);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + gpumem::test::kPatience);
  const auto stream = stub->NodeWatchResources(&context, {});
  v1alpha1::NodeWatchResourcesResponse response;
  while (stream->Read(&response)) {
    if (!wants_more(response)) context.TryCancel();
  }
  return stream->Finish();
}

dra::v1::NodePrepareResourcesResponse Kubelet::prepare(const std::vector<ClaimReference>& claims) {
  std::string answer;
  dra::v1::NodePrepareResourcesResponse response;
  if (call("/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", claims_message(claims), answer)
          .ok())
    response.ParseFromString(answer);
  return response;
}

dra::v1::NodeUnprepareResourcesResponse Kubelet::unprepare(const std::vector<ClaimReference>& claims) {
  std::string answer;
  dra::v1::NodeUnprepareResourcesResponse response;
  if (call("/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources", claims_message(claims), answer)
          .ok())
    response.ParseFromString(answer);
  return response;
}

}  // namespace gpumem::kubernetes::test
