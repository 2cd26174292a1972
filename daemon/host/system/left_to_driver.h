#pragma once
#include <sys/stat.h>

#include <filesystem>
#include <optional>

#include "base/system/system_mode.h"
#include "daemon/host/system/process.h"

namespace gpumem::host {

/// The processes that the drop-in driver leaves to the real one in system mode, as the machine is set up now.
/// The broker cannot see which of the others have waited for it in vain.
class LeftToDriver {
 public:
  /// `runtime_folder`  the broker's.
  static LeftToDriver read(const std::filesystem::path& runtime_folder);

  /// False where system mode is not enabled.
  bool contains(const Process& process) const;

 private:
  bool may_connect(const Process& process) const;

  bool all_ = false;                           ///< the file of the administrator's switch is there
  std::optional<system_mode::Rules> rules_{};  ///< nothing: system mode is not enabled
  struct stat lane_ {};
};

}  // namespace gpumem::host
