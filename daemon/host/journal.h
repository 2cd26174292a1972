#pragma once
#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "daemon/core/checkpoint.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// What the next broker of this machine has to know, in a file of the runtime folder. It outlives the
/// broker's process, not the machine's: what is lent does not either. docs/journal.md has the format.
///
/// Invariant  whatever moment the process ends in, the file is a checkpoint and the changes since, of which
///            the last may be missing.
class Journal {
 public:
  static constexpr std::uint32_t kMostAttempts = 8;
  struct Device {
    std::string uuid;
    Bytes obtainable;  ///< what could be had of it when the first of these brokers started
    bool operator==(const Device&) const = default;
  };
  struct Content {
    core::Checkpoint checkpoint;
    std::vector<Device> devices;  ///< by the checkpoint's places
    std::string damage;           ///< why the end of the file was left out; empty: it was not
  };
  /// What the broker before has left in `folder`. Nothing: there was none since the machine was started.
  /// Counts the attempt: whoever comes so far as to begin() takes it back. Errors  kFailedPrecondition: of a
  /// version that is not known, with a record of an unknown kind, or kMostAttempts have come to nothing;
  ///         kInvalidArgument: no journal; and those of reading. All name the file.
  static Result<std::optional<Content>> read(const std::filesystem::path& folder);
  /// The same for who takes nothing over, and so counts no attempt; the broker whose journal it is may be
  /// writing it, in which case the last change may be missing. Errors  as read().
  static Result<std::optional<Content>> look(const std::filesystem::path& folder);
  /// The attempt that read() has counted came to an orderly end: what failed had nothing to do with the
  /// journal.
  static void take_attempt_back(const std::filesystem::path& folder);
  /// Begins a journal in `folder` in place of the one that is there.
  /// Errors  kResourceExhausted (no room), and those of writing.
  static Result<Journal> begin(const std::filesystem::path& folder, std::vector<Device> devices,
                               const core::Checkpoint& checkpoint);

  /// Adds changes: once this returns, the next broker knows of them. Errors  as begin(); nothing was added.
  Result<void> add(std::span<const core::Checkpoint::Change> changes);
  /// So much of the file is of no use any more that it is worth writing anew.
  bool is_long() const { return size_ > kShortest && size_ > kGrowth * checkpoint_size_; }
  /// The checkpoint in place of everything that is there. Errors  as begin(); the file stays what it was.
  Result<void> rewrite(const core::Checkpoint& checkpoint);

 private:
  static constexpr std::size_t kShortest = std::size_t{1} << 20;
  static constexpr std::size_t kGrowth = 4;

  Journal(std::filesystem::path folder, std::vector<Device> devices)
      : folder_(std::move(folder)), devices_(std::move(devices)) {}

  std::filesystem::path folder_;
  std::vector<Device> devices_;
  UniqueFd file_;
  std::size_t size_ = 0;             ///< of what is whole
  std::size_t checkpoint_size_ = 0;  ///< of what it began with
  std::string buffer_;
};

}  // namespace gpumem::host
