#pragma once

#include <sys/types.h>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/views/views.h"
#include "gpumem/result.h"

namespace gpumem::cli {

class Monitor;

/// The text of /proc/PID/NAME. Errors  kNotFound (no such process), kPermissionDenied: says who may look.
Result<std::string> read_proc_file(pid_t pid, const std::string& name);

/// A driver library that a process has mapped.
struct MappedDriver {
  std::string path;                  ///< as the process sees it
  int copies = 0;                    ///< how often it is loaded: more than once only in namespaces of dlmopen
  bool is_management = false;        ///< libnvidia-ml.so, not libcuda.so
  std::optional<bool> is_drop_in{};  ///< exports gpumem_shim_version; nothing: its file cannot be read
};

/// The driver libraries in `maps`, the text of /proc/PID/maps, by path. `is_drop_in` is left open.
std::vector<MappedDriver> drivers_in(std::string_view maps);

/// The drivers that the process has mapped. Errors  kNotFound (no such process), kPermissionDenied (it is
/// another user's).
Result<std::vector<MappedDriver>> mapped_drivers(pid_t pid);

/// The outcome of one check of this machine, for this user.
struct Finding {
  enum class State { kOk, kWarn, kFail };
  std::string name;  ///< stable, snake_case
  State state = State::kOk;
  std::string found;  ///< the fact, in words
  std::string mend;   ///< the remedy, if there is one
};

struct CheckOptions {
  std::filesystem::path runtime_folder;
  bool allocate = true;  ///< borrow one extent and give it back
};

/// Everything a client needs, in the order in which it is needed. A check that needs
/// a failed one is left out. Only the driver is listed as not known if the broker does not say where it is.
std::vector<Finding> run_checks(const CheckOptions& options);

bool all_well(const std::vector<Finding>& findings);
std::string findings_text(const std::vector<Finding>& findings);
Json findings_json(const std::vector<Finding>& findings);

// The parts of run_checks; each adds to `findings`.

/// The limit of open descriptors of this process.
Finding check_open_files();
/// The devices of `status` whose pools are not whole.
void check_missing(const Monitor& monitor, const v1::GetStatusResponse& status,
                   std::vector<Finding>& findings);
/// Sockets, broker, session, and a small loan. Answers the driver folder to look in; nothing: it is not
/// known, since no session was opened.
std::optional<std::string> check_broker(const CheckOptions& options, std::vector<Finding>& findings);
/// The driver library in `folder` (empty: the system's), its devices, and the system's device nodes.
void check_driver(const std::string& folder, std::vector<Finding>& findings);

/// Whether a running program borrows: what is found of it, and the figures.
struct ProgramReport {
  pid_t pid = 0;
  std::vector<Finding> findings;
  std::vector<MappedDriver> drivers;
  std::vector<std::uint64_t> sessions;  ///< at the broker
  std::uint64_t charged = 0;            ///< bytes of its sessions that are lent
  std::uint64_t declared = 0;           ///< bytes that its sessions are charged besides
  std::uint64_t past_broker = 0;        ///< bytes that it is seen to hold past the broker
};

/// Looks into the process, and asks the broker for it. A fact that cannot be found out is a finding, too.
ProgramReport check_program(pid_t pid, const std::filesystem::path& runtime_folder);

/// As findings_json, with the figures.
Json program_json(const ProgramReport& report);

}  // namespace gpumem::cli
