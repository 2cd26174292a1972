#pragma once
#include <string>

#include "base/system/unique_fd.h"
#include "client/cli/top/rows.h"
#include "gpumem/result.h"

namespace gpumem::cli::top {

/// The process of a session that this user is about to end. It is the same process when it is signalled,
/// however long the user thinks.
class ProcessEnd {
 public:
  /// Errors  kPermissionDenied (another user's; the message has the command for it); kFailedPrecondition (no
  ///         process, or it is another one); kNotFound (it has ended).
  static Result<ProcessEnd> prepare(const Row& row);

  const std::string& question() const { return question_; }
  /// Sends SIGTERM. Returns what to tell. Errors  kNotFound; kPermissionDenied.
  Result<std::string> carry_out() const;

 private:
  ProcessEnd(UniqueFd process, std::string name);

  UniqueFd process_;
  std::string name_;
  std::string question_;
};

}  // namespace gpumem::cli::top
