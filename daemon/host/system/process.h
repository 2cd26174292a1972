#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/process_stat.h"
#include "base/system/system_mode.h"
#include "base/system/unique_fd.h"
#include "daemon/core/sessions/effects.h"
#include "daemon/core/words/types.h"
#include "gpumem/result.h"

namespace gpumem {
class SubordinateIds;
}

namespace gpumem::host {

/// SIGTERM or SIGKILL.
int signal_number(core::Signal signal);

/// When the process `pid` started, as the kernel counts (/proc/PID/stat, field 22).
/// Errors  kNotFound: it is gone.
Result<std::uint64_t> start_time(std::int64_t pid);

/// A handle of `pid`, if that is still the process that started then, and not a successor with its number.
/// Errors  kNotFound: it is gone; kResourceExhausted: no descriptor left.
Result<UniqueFd> open_process(std::int64_t pid, std::uint64_t started);

/// Whether the process behind `pidfd` has ended. False for -1.
bool has_ended(int pidfd);

/// Sends `signal` to the process behind `pidfd`. Errors  kNotFound: it is gone; kPermissionDenied.
Result<void> signal_process(int pidfd, core::Signal signal);

/// Sends `signal` to `pid` if that is still the process that started then, and not a successor with its
/// number. Errors  kNotFound: it is gone; kPermissionDenied.
Result<void> signal_process(std::int64_t pid, std::uint64_t started, core::Signal signal);

/// Tells which pod of Kubernetes a process is in, by what the kernel shows of it: the cgroups that the
/// kubelet made.
struct PodReader {
  std::filesystem::path processes = "/proc";  ///< where PID/cgroup and PID/status are; tests have their own
  std::string cgroup_root = "/";              ///< the kubelet's --cgroup-root
  bool looks = true;                          ///< false: nobody is in a pod, and nothing is read

  struct Found {
    std::string pod;                    ///< as core::Peer::pod
    bool unknown = false;               ///< as core::Peer::pod_unknown
    bool contained = false;             ///< as core::Peer::contained; also where it cannot be told
    std::optional<ProcessStat> stat{};  ///< of the process, if that was read on the way
  };
  /// The answer is about the process with `pid` only if that still runs afterwards: the caller checks by a
  /// handle of it, or by its start time. `pid`  0: the kernel does not show it. Blocks: as /proc does.
  Found find(std::int64_t pid) const;
};

/// A process, by the kernel's data.
struct Process {
  std::uint64_t started = 0;        ///< as start_time(); with the pid, it names the process
  std::uint32_t uid = 0;            ///< effective
  std::vector<std::uint32_t> gids;  ///< the effective group first
  std::string command;
  system_mode::ProcessFacts facts;
  PodReader::Found in;  ///< which pod
};

/// Errors  kNotFound: there is no such process (any more); kPermissionDenied: there is, but the kernel does
///         not show it to us.
Result<Process> find_process(std::int64_t pid, const PodReader& pods = {});

/// The name that a process gives itself, for people: unprintable characters become `?`. Empty: unknown.
std::string command_of(std::int64_t pid);

/// Features of newer kernels that the broker uses. Tests switch a feature off to run the fallback.
struct KernelFeatures {
  bool pass_rights = true;  ///< SO_PASSRIGHTS, Linux 6.16: a socket that takes no descriptors
  bool peer_pidfd = true;   ///< SO_PEERPIDFD, Linux 6.5: a handle of the process that connected
  PodReader pods{};         ///< where the kernel shows in which pod a process is
  const SubordinateIds* subordinates = nullptr;  ///< outlives all users; none: every user answers for itself
};

/// The watch over one process: tells when it has ended, and sends it signals.
/// Threads  the loop's.
class ProcessWatch {
 public:
  explicit ProcessWatch(boost::asio::io_context& loop) : process_(loop) {}

  /// Takes over `pidfd`, a handle of the process. Errors  kResourceExhausted: the kernel can watch no more;
  /// it stays the caller's.
  Result<void> watch(UniqueFd& pidfd);
  /// Calls `ended` once the process has ended, unless stop() comes first. `ended` holds whoever holds this.
  void await_end(std::function<void()> ended);
  /// Watches a process that has not been seen to end.
  bool is_watching() const { return watching_; }
  void stop();

  /// Sends `signal` to the process itself, whose pid may be another's by now.
  /// Errors  kNotFound: it is gone; kFailedPrecondition: no process is watched; kPermissionDenied.
  Result<void> signal(core::Signal signal);
  /// A handle of the process that outlives the watch, the same at each call. It is invalid if no process is
  /// watched. Null: no descriptor is left.
  std::shared_ptr<const UniqueFd> handle();

 private:
  boost::asio::posix::stream_descriptor process_;
  std::shared_ptr<const UniqueFd> handle_;
  bool watching_ = false;
};

}  // namespace gpumem::host
