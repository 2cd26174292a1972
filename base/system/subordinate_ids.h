#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/owner.h"

namespace gpumem {

/// The ranges of user ids that users have for their containers, as subuid(5) has them. A range of root counts
/// as nobody's, and so does one that overlaps another user's. Users of a directory service whose ids are
/// within a range belong to its owner, too.
/// Threads  any.
class SubordinateIds {
 public:
  using FindOwner = std::function<std::optional<Owner>(const std::string& name)>;

  /// `find_owner`  of an owner's name or number; default: as this machine has them (getpwnam(3),
  /// getgrouplist(3)).
  explicit SubordinateIds(std::filesystem::path file = "/etc/subuid", FindOwner find_owner = of_machine());

  /// The owners that read() looks up again, even if the file has not changed.
  enum class Again {
    kNone,
    kMissing,  ///< those that were not found, such as users of a directory service that was away
    kAll       ///< they may have other numbers and groups
  };
  /// Reads the file again, and looks up all owners if it has changed. A missing file has no ranges; one that
  /// cannot be read leaves the ranges as they are, and the log says so.   Blocks.
  void read(Again again = Again::kNone);
  /// Nothing: `uid` is nobody's subordinate id.
  std::optional<Owner> owner_of(std::uint32_t uid) const;

 private:
  struct Range {
    std::uint64_t first;
    std::uint64_t end;
    std::shared_ptr<const Owner> owner;
  };
  using Ranges = std::vector<Range>;  ///< in order, none overlapping
  /// By name; null: not found. Empty: nothing was looked up.
  using Owners = std::map<std::string, std::shared_ptr<const Owner>>;
  static FindOwner of_machine();
  static Ranges without_shared(Ranges all);
  Ranges parse();

  const std::filesystem::path file_;
  const FindOwner find_owner_;
  std::string text_;  ///< as it was read; with owners_, the thread's that reads
  Owners owners_;
  mutable Mutex mutex_;
  std::shared_ptr<const Ranges> ranges_ GPUMEM_GUARDED_BY(mutex_) = std::make_shared<const Ranges>();
};

}  // namespace gpumem
