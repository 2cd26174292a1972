#include "daemon/kubernetes/device_plugin/kubelet_link.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>

#include "base/log.h"
#include "daemon/kubernetes/plugin/unix_server.h"
#include "proto/channel.h"

namespace gpumem::kubernetes {
namespace {

constexpr std::chrono::seconds kRegistrationPatience{10};
// A kubelet that takes an old connection's end for the new one's forgets the plugin without a word.
constexpr std::chrono::seconds kListensWithin{5};

std::string socket_name(std::string resource) {
  std::replace(resource.begin(), resource.end(), '/', '_');
  return resource + ".sock";
}

}  // namespace

KubeletLink::KubeletLink(Options options, OfferedUnits& offered, PluginService& service)
    : options_(std::move(options)),
      offered_(offered),
      service_(service),
      socket_(options_.folder / socket_name(options_.resource)),
      kubelet_socket_(options_.folder / "kubelet.sock") {}

KubeletLink::~KubeletLink() {
  offered_.stop();
  stop_listening(server_, socket_);
}

bool KubeletLink::is_kept(const std::optional<FileIdentity>& kubelet) const {
  if (!registered_ || registered_ != kubelet || !file_identity(socket_)) return false;
  return offered_.listeners() > 0 || std::chrono::steady_clock::now() < registered_at_ + kListensWithin;
}

Result<void> KubeletLink::register_once() {
  // A channel of its own: one that has failed waits before it tries again.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = ::v1beta1::Registration::NewStub(grpc::CreateCustomChannel(
      socket_target(kubelet_socket_), grpc::InsecureChannelCredentials(), arguments));
  ::v1beta1::RegisterRequest request;
  request.set_version("v1beta1");
  request.set_endpoint(socket_.filename().string());
  request.set_resource_name(options_.resource);
  *request.mutable_options() = PluginService::wanted_calls();
  grpc::ClientContext context;
  set_timeout(context, kRegistrationPatience);
  ::v1beta1::Empty answer;
  const grpc::Status status = stub->Register(&context, request, &answer);
  if (status.ok()) return {};
  const bool is_away = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                       status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  return Error{is_away ? Code::kUnavailable : Code::kFailedPrecondition,
               "the kubelet at " + kubelet_socket_.string() + ": " + status.error_message()};
}

Result<void> KubeletLink::keep() {
  if (offered_.devices().empty()) return {};
  const auto kubelet = file_identity(kubelet_socket_);
  if (is_kept(kubelet)) return {};
  registered_.reset();
  if (server_ == nullptr || !file_identity(socket_)) {
    stop_listening(server_, socket_);
    auto server = listen(socket_, {&service_});
    if (!server) return server.error();
    server_ = std::move(*server);
  }
  if (!kubelet)
    return Error{Code::kUnavailable,
                 "the kubelet's socket " + kubelet_socket_.string() +
                     " is not there; does the kubelet run, and is --kubelet-dir its folder?"};
  if (auto done = register_once(); !done) return done;
  registered_ = kubelet;
  registered_at_ = std::chrono::steady_clock::now();
  spdlog::info("the kubelet has registered {}", options_.resource);
  return {};
}

}  // namespace gpumem::kubernetes
