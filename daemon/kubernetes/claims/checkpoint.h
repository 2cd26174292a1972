#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/system/unique_fd.h"
#include "daemon/kubernetes/claims/claim.h"
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

/// One device of a claim that is prepared.
struct PreparedShare {
  Share share;
  std::string uuid;  ///< of the device

  bool operator==(const PreparedShare&) const = default;
};

/// The data of a claim that the driver has without the API server. A claim without shares is being prepared
/// for the first time, or was found on the node without other data. It is kept until the kubelet unprepares
/// it, or prepares it again.
struct PreparedClaim {
  ClaimReference claim;
  bool standalone = false;
  std::vector<PodReference> pods;
  std::vector<PreparedShare> shares;
};

/// By UID.
using PreparedClaims = std::map<std::string, PreparedClaim>;

/// The claims that the driver has prepared on this node, in a file of the plugin's folder: JSON with a
/// version and a checksum. Threads  one at a time; processes exclude each other by StateLock.
class Checkpoint {
 public:
  /// `folder`  of the plugin; has to be there when the checkpoint is read or written.
  explicit Checkpoint(const std::filesystem::path& folder) : file_(folder / "checkpoint.json") {}

  const std::filesystem::path& file() const { return file_; }

  /// Errors  kNotFound: there is none. kInvalidArgument: damaged. kFailedPrecondition: of a newer version of
  /// the driver.
  Result<PreparedClaims> load() const;

  /// Replaces it, atomically. Errors  as replace_file.
  Result<void> save(const PreparedClaims& claims) const;

  /// Puts a damaged one aside, for people; where it is now.
  Result<std::filesystem::path> put_aside() const;

 private:
  std::filesystem::path file_;
};

}  // namespace gpumem::kubernetes
