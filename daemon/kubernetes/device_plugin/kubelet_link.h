#pragma once
#include <grpcpp/server.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "daemon/kubernetes/device_plugin/plugin_service.h"
#include "daemon/kubernetes/http/whole_file.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// The plugin's socket, and its registration with the kubelet of the hour: one that starts removes all
/// sockets of its folder and knows no plugin. Threads  one.
class KubeletLink {
 public:
  struct Options {
    std::filesystem::path folder;  ///< the kubelet's device-plugins
    std::string resource;
  };

  KubeletLink(Options options, OfferedUnits& offered, PluginService& service);
  /// Ends the socket and lets calls that are under way end.
  ~KubeletLink();

  const std::filesystem::path& socket() const { return socket_; }

  /// Listens, and registers with the kubelet, unless both is done and the kubelet still listens to the list.
  /// Before there is anything to offer it does nothing. Blocks, 10 s at most. Errors  kUnavailable: cannot
  /// listen, or no kubelet is there; kFailedPrecondition: it refuses, in its words.
  Result<void> keep();

 private:
  bool is_kept(const std::optional<FileIdentity>& kubelet) const;
  Result<void> register_once();

  Options options_;
  OfferedUnits& offered_;
  PluginService& service_;
  std::filesystem::path socket_;
  std::filesystem::path kubelet_socket_;
  std::unique_ptr<grpc::Server> server_;
  std::optional<FileIdentity> registered_;  // with the kubelet that had this socket
  std::chrono::steady_clock::time_point registered_at_;
};

}  // namespace gpumem::kubernetes
