#pragma once
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/broker/broker.h"
#include "daemon/host/state/journal.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// Writes the core's changes to the journal before anybody else learns of them. While that fails, the core
/// lends nothing new, because the next broker would not know of it. Other changes are kept meanwhile, and
/// added to the file as soon as there is room.
/// Threads  the loop's.
class JournalWriter {
 public:
  /// Without a folder nothing is written. `devices`  of the policy. Errors  as Journal::begin().
  Result<void> begin(const std::filesystem::path& folder, std::vector<std::string> devices,
                     core::Broker& broker);
  /// Nothing is written any more. If it was failing, everything is tried once more.
  void close(const core::Broker& broker);
  /// Must be called before the effects of the changes are done. False: the changes are not written.
  bool write(core::Broker& broker, core::TimePoint now);
  bool is_failing() const { return failed_.has_value(); }
  /// Why nothing can be written.
  const std::string& why() const { return why_; }

 private:
  void write_kept(core::Broker& broker, core::TimePoint now);
  void shorten(core::Broker& broker, core::TimePoint now);
  void fail(core::Broker& broker, const Error& error, core::TimePoint now);

  static constexpr core::Duration kShortestPause = std::chrono::seconds(1);
  static constexpr core::Duration kLongestPause = std::chrono::seconds(30);

  std::optional<Journal> journal_;
  std::vector<core::Checkpoint::Change> changes_;
  std::string why_;
  std::optional<core::TimePoint> failed_;  ///< since nothing could be written; the time of the last try
  core::Duration pause_ = kShortestPause;  ///< from then to the next
  bool has_room_ = false;                  ///< the last failure was no lack of room
  std::optional<core::TimePoint> not_shortened_;  ///< since it could not be shortened; likewise
  core::Duration shortening_pause_ = kShortestPause;
};

}  // namespace gpumem::host
