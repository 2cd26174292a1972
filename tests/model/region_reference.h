#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/words/types.h"
#include "gpumem/bytes.h"

namespace gpumem::core::model {

/// docs/regions.md as slow code: who has the memory, whose it is, and which regions there are. Sessions are
/// named by their number, tenants by their name.
class RegionReference {
 public:
  struct Region {
    std::string owner;
    std::string name;
    std::vector<LeaseId> memory;
    bool is_public = false;
    TimePoint expires = TimePoint::max();
    bool kept = false;
    Duration linger = Duration::max();
    TimePoint left = TimePoint::max();  ///< of a kept one: since when nobody has any of its memory
    bool sealed = false;
    DeviceIndex device = 0;

    TimePoint ends() const;
  };
  struct Memory {
    std::string tenant;  ///< who is charged
    Bytes size;
    std::map<SessionId, int> has;   ///< by slice, and by mappings; how often
    std::set<SessionId> has_had{};  ///< at any time, and lives
  };

  void connect(SessionId session, const std::string& tenant) { tenants_[session] = tenant; }
  /// `session` has it in a slice.
  void lend(LeaseId lease, SessionId session, Bytes size);
  /// Whether a region of the memory, which is in a slice, may be sealed, or not: as all others of it. Without
  /// others it is not sealed while somebody has it mapped.
  bool may_seal(const std::vector<LeaseId>& memory, bool is_sealed) const;
  void publish(RegionId id, Region region) { regions_.emplace(id, std::move(region)); }
  /// The newest of that name that the session may map; none: zero.
  /// `device`  of those of this device; none: of all.
  RegionId find(SessionId session, const std::string& owner, const std::string& name,
                std::optional<DeviceIndex> device) const;
  void map(SessionId session, RegionId region, TimePoint now);
  enum class May { kNot, kPerhaps, kSurely };
  /// Whether a session of its tenant takes a kept region over. Perhaps: the session that is charged is one of
  /// several that have it, and any of these will do.
  May may_adopt(SessionId session, RegionId region) const;
  /// After it was mapped.
  void adopt(RegionId region);
  /// A slice's, or one mapping's.
  void let_go(SessionId session, const std::vector<LeaseId>& memory, TimePoint now);
  void end(SessionId session, TimePoint now);
  void remove(RegionId region, TimePoint now);
  /// Everything whose time is over by then.
  void pass_to(TimePoint now);

  const std::map<RegionId, Region>& regions() const { return regions_; }
  const std::map<LeaseId, Memory>& memory() const { return memory_; }
  const std::string& tenant_of(SessionId session) const { return tenants_.at(session); }
  Bytes charged(const std::string& tenant) const;
  /// Of that: what no process of the tenant has.
  Bytes kept(const std::string& tenant) const;

 private:
  bool has(const Memory& memory, const std::string& tenant) const;
  /// Until everything is whose it should be.
  void settle(TimePoint now);
  bool settle_one(LeaseId lease, TimePoint now);
  void erase(RegionId region) { regions_.erase(region); }
  std::vector<RegionId> regions_of(LeaseId lease) const;
  void note_left(TimePoint now);

  std::map<SessionId, std::string> tenants_;
  std::map<RegionId, Region> regions_;
  std::map<LeaseId, Memory> memory_;
};

}  // namespace gpumem::core::model
