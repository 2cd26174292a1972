#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/system/unique_fd.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// Keeps descriptors of lent memory beyond the end of the broker's process: a service manager.
/// Threads  any. Blocks.
class DescriptorStore {
 public:
  virtual ~DescriptorStore() = default;

  /// Keeps a duplicate of `descriptor`, for the next broker. It holds on to the memory.
  virtual void keep(LeaseId lease, int descriptor) const = 0;
  /// Lets go of what it keeps for these leases, if anything. Returns when it has, or after some seconds.
  /// False if it could not be told: it still keeps what it kept.
  [[nodiscard]] virtual bool forget(std::span<const LeaseId> leases) const = 0;
};

/// The names (FileDescriptorName=) of the listening sockets that a service manager passes.
inline constexpr std::string_view kLaneDescriptor = "lane";
inline constexpr std::string_view kApiDescriptor = "api";
/// Names for sockets that a broker has made itself.
inline constexpr std::string_view kOwnLaneDescriptor = "own-lane";
inline constexpr std::string_view kOwnApiDescriptor = "own-api";

/// The name of a descriptor of a lease's memory: lease-4711.
std::string name_of(LeaseId lease);

/// A descriptor of memory that the broker before has lent.
struct KeptDescriptor {
  UniqueFd fd;
  bool stored = false;  ///< the service manager keeps it, too
};

/// The descriptors that this process was started with, by name: from the service manager (sd_listen_fds(3))
/// or from the broker that this process ran before (pass()).
class PassedDescriptors {
 public:
  /// Owns what was passed to this process, close-on-exec. At most once in a process.
  static PassedDescriptors of_process();

  void add(std::string name, UniqueFd fd, bool stored);
  /// The descriptor that was passed under `name`, once. Of several with this name, the first.
  std::optional<UniqueFd> take(std::string_view name);
  /// The descriptors of leases. If a lease has several, one of them.
  std::map<LeaseId, KeptDescriptor> take_leases();

 private:
  std::multimap<std::string, KeptDescriptor, std::less<>> passed_;
};

/// A descriptor under the name by which the next program finds it.
struct NamedDescriptor {
  std::string name;
  UniqueFd fd;
  bool stored = false;  ///< as KeptDescriptor
};
using NamedDescriptors = std::vector<NamedDescriptor>;

/// Makes `descriptors` survive an exec of this process, and the next program find them, which needs the
/// second of what is returned in its environment: NAME=VALUE. The first has to be open at the exec. Errors
/// kUnavailable: of the kernel.
Result<std::pair<UniqueFd, std::string>> pass(const NamedDescriptors& descriptors);

}  // namespace gpumem::host
