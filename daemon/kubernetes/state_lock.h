#pragma once
#include <filesystem>

#include "base/unique_fd.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// The right to read and change what the plugin's folder and the folder of device specifications hold. During
/// a rolling update two processes of the driver serve the node: each has it for one call at a time. So has
/// each thread: the lock belongs to the file as it was opened here.
class StateLock {
 public:
  /// Waits for it. Blocks. Errors  the file `serialize.lock` in `folder` cannot be made or locked.
  static Result<StateLock> take(const std::filesystem::path& folder);

 private:
  explicit StateLock(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;  // flock(2): closing gives it back
};

}  // namespace gpumem::kubernetes
