#pragma once
#include <optional>
#include <vector>

#include "daemon/core/broker.h"
#include "daemon/host/journal.h"

namespace gpumem::host {

/// Writes down what the core tells, before anybody else hears of it. While that fails, the core lends nothing
/// new: the next broker would not know of it.
/// Threads  the loop's.
class JournalWriter {
 public:
  /// Without a folder nothing is written. `devices`  those of the policy. Errors  as Journal::begin().
  Result<void> begin(const std::filesystem::path& folder, std::vector<Journal::Device> devices,
                     core::Broker& broker);
  /// Nothing is written any more.
  void close() { journal_.reset(); }
  /// To be called before the effects of the changes are done. False: they are not written.
  bool write(core::Broker& broker, core::TimePoint now);
  bool is_failing() const { return failed_.has_value(); }
  /// Why nothing can be written.
  const std::string& why() const { return why_; }

 private:
  bool try_again(core::Broker& broker, core::TimePoint now);
  void fail(core::Broker& broker, const Error& error, core::TimePoint now);

  std::optional<Journal> journal_;
  std::vector<core::Checkpoint::Change> changes_;
  std::string why_;
  std::optional<core::TimePoint> failed_;  ///< since nothing could be written; the time of the last try
};

}  // namespace gpumem::host
