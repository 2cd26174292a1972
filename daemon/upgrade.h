#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/host/state/passed_descriptors.h"
#include "gpumem/result.h"

namespace gpumem {

/// The line by which a broker tells that it serves, before its version. In the file of its runtime folder's
/// lock.
inline constexpr const char* kServing = "serving ";

/// Has the broker that serves the runtime folder become this program, and waits until that serves.
/// Returns what there is to say of it. Blocks: as long as pools are created.
/// Errors  kNotFound: no broker serves there; kFailedPrecondition: it is another program, or too old for it;
///         kUnavailable: it has ended, or refused. What clients have is theirs in any case.
Result<std::string> upgrade(const std::filesystem::path& runtime_folder);

/// A program that can take the place of this process.
class Successor {
 public:
  /// The program that this process runs, wherever its file is replaced by another. To be called at the start.
  Successor(int argc, char** argv);
  /// Whether it can be run, and accepts the configuration.   Blocks: while it looks, for a minute at most.
  /// Errors  kFailedPrecondition: it does not, and its output says why; of the kernel.
  Result<void> check() const;
  /// Becomes it, and passes it `descriptors`. Returns only if that fails.
  Error become(const host::NamedDescriptors& descriptors) const;

 private:
  std::string program_;
  std::vector<std::string> arguments_;
};

}  // namespace gpumem
