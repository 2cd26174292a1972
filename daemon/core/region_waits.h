#pragma once
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "daemon/core/waits.h"

namespace gpumem::core {

/// How a region is mapped. kOwner: a kept one that no process has lives as long as its memory from now on,
/// with the session that maps it.
/// kOwner: a kept region that no process has lives with the session from now on. kWriter: the session, of the
/// region's own tenant, will write to it.
enum class MapAs { kReader, kOwner, kWriter };

/// Which region, and how.
struct MapTerms {
  std::string owner;  ///< a tenant's name; empty: the session's own
  std::string name;
  std::uint64_t version = 0;  ///< 0: the newest
  MapAs how = MapAs::kReader;
  std::string device{};  ///< a UUID: of those whose memory is of this device; empty: of all
  /// Of a region of the session's own tenant: if there is none, its name is reserved for so long; zero: not.
  Duration reserve_for{};
  std::uint64_t number = 0;  ///< the client's own of the request, by which it may call it off

  bool reserves() const { return reserve_for > Duration::zero(); }
};

/// A session waits for a region that is not published yet, or not for it.
struct RegionWait {
  static constexpr const char* kWhat = "regions";

  SessionId session;
  TenantId tenant;          ///< the session's
  MapTerms terms;           ///< its owner is named
  bool is_own = false;      ///< the owner is the session's tenant, whoever that is
  bool is_pressed = false;  ///< it is there, and its memory is being asked back
  TimePoint since{};
  TimePoint deadline{};

  std::tuple<std::string, std::string, TenantId> key() const { return {terms.owner, terms.name, tenant}; }
};

class RegionWaits : public Waits<RegionWait> {
 public:
  using Wait = RegionWait;

  /// Who waits for a region of that name.
  std::vector<TenantId> tenants_for(const std::string& owner, const std::string& name) const;
  /// Owners and names that are waited for.
  std::vector<std::pair<std::string, std::string>> names() const;

  /// It can probably be answered.
  void note_due(RequestId id) { due_.insert(id); }
  /// Of those that were noted, and still wait, the one that came first.
  std::optional<RequestId> take_due();
  bool has_due() const { return !due_.empty(); }

  void note_pressed(RequestId id) {
    change(id, [](RegionWait& wait) { wait.is_pressed = true; });
    pressed_.insert(id);
  }
  /// Those that were noted since the last call, and still wait.
  std::vector<RequestId> take_pressed();
  bool has_pressed() const { return !pressed_.empty(); }
  /// The session's tenant is another one now: so is whose regions it waits for, where they are its own.
  void follow(SessionId session, TenantId tenant, const std::string& tenant_name);

 private:
  std::set<RequestId> pressed_;
  std::set<RequestId> due_;
};

}  // namespace gpumem::core
