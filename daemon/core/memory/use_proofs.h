#pragma once
#include <cstdint>
#include <map>
#include <optional>

#include "daemon/core/memory/job.h"

namespace gpumem::core {

/// Decides from the used bytes of a device whether the driver has got memory back that was lent. The figure
/// is the used bytes less those of the broker's own extents. If it rises when an extent is destroyed, a
/// process still uses the memory. It falls once the process lets go of it.
///
/// A fall of the figure has no name on it: memory that another process frees at that moment can pass as the
/// proof. But one fall never proves two leases.
/// A fall of half of a lease's size proves it, since other processes may take memory meanwhile.
class UseProofs {
 public:
  /// The broker has created or destroyed extents of these bytes.
  void note_created(Bytes bytes) { own_ += signed_of(bytes); }
  void note_destroyed(Bytes bytes) { own_ -= signed_of(bytes); }

  using Used = std::optional<Bytes>;  ///< of the device; nothing: the driver does not tell
  /// To be called before the step with the proof destroys anything.
  void begin(Used used);
  /// Whether the lease's memory is proved free. `has_destroyed`  its extent was destroyed since begin().
  /// If it was not destroyed by this broker at all, the memory was in the hands of its process alone, and the
  /// word of that process is taken for it.
  bool end(const Job::Step::Proof& proof, bool has_destroyed, Used used);
  /// Whether the lease's memory could not be proved free so far.
  bool has_failed(LeaseId lease) const { return unproved_.contains(lease); }
  /// A proof by creation has this outcome. If it has failed, a later proof may be by use. `used`  is needed
  /// if it has failed, or has failed before.
  void note_outcome(const Job::Step::Proof& proof, bool proved, Used used);

 private:
  struct Unproved {
    Bytes size;
    std::int64_t peak = 0;    ///< the highest figure seen, less what was proved since
    bool has_fallen = false;  ///< the figure fell far enough
  };
  static std::int64_t signed_of(Bytes bytes) { return static_cast<std::int64_t>(bytes.count); }
  void look(Used used);
  void note_figure(std::int64_t figure);
  Unproved* largest_fallen();
  void note_fall(const Unproved& proved);

  std::int64_t own_ = 0;     ///< since the start
  std::int64_t figure_ = 0;  ///< as last seen
  std::map<LeaseId, Unproved> unproved_;
};

}  // namespace gpumem::core
