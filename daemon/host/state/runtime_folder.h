#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/unique_fd.h"
#include "daemon/host/state/passed_descriptors.h"
#include "daemon/host/system/process.h"
#include "gpumem/result.h"

namespace gpumem::host {

inline constexpr const char* kMetricsSocketName = "metrics.sock";

/// A listening, non-blocking Unix socket.
struct ListeningSocket {
  UniqueFd fd;
  bool takes_descriptors = true;  ///< clients can send some: the kernel does not refuse them
  bool shared = false;            ///< the service manager listens on it, too: it outlives the broker
};

/// A listening socket that was passed.
struct PassedSocket {
  UniqueFd fd;
  bool is_own = false;  ///< the broker before has made it; else the service manager
};
/// The broker makes those that it lacks.
struct PassedSockets {
  std::optional<PassedSocket> lane{};
  std::optional<PassedSocket> api{};

  static PassedSockets of(PassedDescriptors& passed);
};

/// The number of the group that the configuration names as `socket_group`; empty: the daemon's own.
/// Errors  kInvalidArgument: there is no such group.
Result<unsigned> resolve_socket_group(const std::string& group);

/// The folder of the broker's sockets, held by one broker at a time. Left-over sockets of a broker that
/// died are removed; anything else in their place is an error. The sockets that it made go when it goes;
/// those that were passed stay, so connections wait for the next broker.
class RuntimeFolder {
 public:
  /// Makes the folder if need be, and takes it. `group`  who may connect; empty: the daemon's own group.
  /// `passed`  sockets of this folder that exist already; who may connect to them is the service manager's,
  /// so that `group` may be missing if both were passed.
  /// Errors  kAlreadyExists (another broker, or something else, is there), kPermissionDenied,
  ///         kInvalidArgument (unknown group; path too long for a socket), kFailedPrecondition (what was
  ///         passed is not a listening socket of this folder; every user may write to it).
  static Result<RuntimeFolder> claim(const std::filesystem::path& folder, const std::string& group,
                                     PassedSockets passed = {});

  RuntimeFolder(RuntimeFolder&&) = default;
  RuntimeFolder& operator=(RuntimeFolder&&) = delete;
  ~RuntimeFolder();

  const std::filesystem::path& path() const { return path_; }
  /// Adds a line to the file of the lock, for whoever waits for it there.
  void tell(const std::string& line) const;
  /// Tells the drop-in driver which programs it leaves to the real one (base/system/system_mode.h). If that
  /// fails, the log says so, and what was told before holds.
  void publish_except(const std::vector<std::string>& names) const;
  /// Listens on the lane (SOCK_SEQPACKET) and on the socket of gRPC (SOCK_STREAM), for the group, or
  /// takes those that were passed. Connections wait until they are accepted. Each once.
  Result<ListeningSocket> listen_on_lane(const KernelFeatures& kernel = {});
  Result<ListeningSocket> listen_on_api(const KernelFeatures& kernel = {});
  /// The sockets of the lane and of gRPC, under the names by which the next broker in this process finds
  /// them. Gives up the ownership.
  NamedDescriptors pass_on();
  /// Listens on the socket of the metrics (SOCK_STREAM), for the group `gid` instead.
  Result<ListeningSocket> listen_on_metrics(unsigned gid, const KernelFeatures& kernel = {});
  /// Opens that socket to the group `gid` in place of the other. No effect if nobody listens there.
  Result<void> open_metrics(unsigned gid) const;

 private:
  // A socket of the folder.
  struct Entry {
    const char* name;
    int type;
    std::string_view passed_name;        // of the service manager's
    std::string_view own_name;           // of the broker's own
    std::optional<PassedSocket> passed;  // until it is listened on
    bool is_own = false;                 // removed when the broker ends
    UniqueFd listening{};                // a duplicate, to be passed on

    Result<void> check_passed(const std::filesystem::path& folder) const;
  };

  RuntimeFolder(std::filesystem::path path, Entry lane, Entry api, Entry metrics)
      : path_(std::move(path)), lane_(std::move(lane)), api_(std::move(api)), metrics_(std::move(metrics)) {}
  Result<ListeningSocket> listen(Entry& entry, unsigned gid, const KernelFeatures& kernel);

  std::filesystem::path path_;
  Entry lane_;
  Entry api_;
  Entry metrics_;
  UniqueFd lock_;
  unsigned gid_ = 0;
};

}  // namespace gpumem::host
