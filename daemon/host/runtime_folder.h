#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "daemon/host/kernel_features.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// A listening, non-blocking Unix socket.
struct ListeningSocket {
  UniqueFd fd;
  bool takes_descriptors = true;  ///< those that clients send: the kernel could not be told to refuse them
};

/// The number of the group that the configuration names under `key`; `group` empty: the daemon's own.
/// Errors  kInvalidArgument: there is no such group.
Result<unsigned> resolve_group(const std::string& group, std::string_view key);

/// The folder of the broker's sockets, held by one broker at a time. Left-over sockets of a broker that
/// died are removed; anything else in their place is an error. Its sockets go when it goes.
class RuntimeFolder {
 public:
  /// Makes the folder if need be, and takes it. `group`  who may connect; empty: the daemon's own group.
  /// Errors  kAlreadyExists (another broker, or something else, is there), kPermissionDenied,
  ///         kInvalidArgument (unknown group; path too long for a socket).
  static Result<RuntimeFolder> claim(const std::filesystem::path& folder, const std::string& group);

  RuntimeFolder(RuntimeFolder&&) = default;
  RuntimeFolder& operator=(RuntimeFolder&&) = delete;
  ~RuntimeFolder();

  const std::filesystem::path& path() const { return path_; }
  /// Listens on the lane (SOCK_SEQPACKET) and on the socket of gRPC (SOCK_STREAM), for the group. Connections
  /// wait until they are accepted.
  Result<ListeningSocket> listen_on_lane(const KernelFeatures& kernel = {}) const;
  Result<ListeningSocket> listen_on_api(const KernelFeatures& kernel = {}) const;

 private:
  RuntimeFolder(std::filesystem::path path, UniqueFd lock, unsigned gid)
      : path_(std::move(path)), lock_(std::move(lock)), gid_(gid) {}
  Result<ListeningSocket> listen(const char* name, int type, const KernelFeatures& kernel) const;
  Result<void> open_to_group(const std::filesystem::path& path) const;

  std::filesystem::path path_;
  UniqueFd lock_;
  unsigned gid_;
};

}  // namespace gpumem::host
