#pragma once
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// System mode: the loader finds the drop-in driver first, for every program of the machine (`gpumem system
/// enable`). Some programs are left to the driver. The drop-in driver and the broker decide by the same rules
/// who they are.
namespace gpumem::system_mode {

/// The file that names the drop-in driver's folder to ldconfig. It is there while system mode is enabled.
inline constexpr const char* kSwitch = "/etc/ld.so.conf.d/00-00-gpumem.conf";
/// While this file is there, all programs are left to the driver.
inline constexpr const char* kOff = "/etc/gpumem/off";
/// A file in the broker's runtime folder: `except` of the broker's configuration, a name in each line.
inline constexpr const char* kExceptFile = "system.except";
/// The end of the path of the folder that the switch names.
inline constexpr std::string_view kFolder = "/gpumem/system";

/// Whether libraries in `folder` are found in system mode.
bool is_system_folder(const std::filesystem::path& folder);

/// The real driver's library `name` by the loader's cache: the first one that is not in a system folder.
/// Empty: there is none.
std::filesystem::path real_library(const std::string& name);

/// Facts that the kernel tells of a process, and that decide whether it is left to the driver.
struct ProcessFacts {
  std::string name;  ///< its comm: 15 bytes at most
  uid_t uid = 0;     ///< effective
  bool has_changed_user = false;
  bool is_filtered = false;  ///< by seccomp

  /// `status`  the text of /proc/PID/status. Nothing: it does not tell.
  static std::optional<ProcessFacts> in(std::string_view status);
};

/// Which programs are left to the driver, by the configuration of the machine.
struct Rules {
  uid_t least_uid = 1000;  ///< UID_MIN of /etc/login.defs: users below are the machine's own
  std::vector<std::string> except;

  static Rules read(const std::filesystem::path& runtime_folder);
  /// The words that UID_MIN is read from.
  static uid_t least_uid_in(std::string_view login_defs);
  bool leave_to_driver(const ProcessFacts& process) const { return why_left(process) != nullptr; }
  /// Why the process is left to the driver, in words after "because"; null: it is not.
  const char* why_left(const ProcessFacts& process) const;
};

}  // namespace gpumem::system_mode
