#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/types.h"
#include "gpumem/result.h"

namespace gpumem::core {

/// How a region is mapped. kOwner: a kept one that no process has lives as long as its memory from now on,
/// with the session that maps it.
enum class MapAs { kReader, kOwner };

/// Which region, and how.
struct MapTerms {
  std::string owner;  ///< a tenant's name; empty: the session's own
  std::string name;
  std::uint64_t version = 0;  ///< 0: the newest
  MapAs how = MapAs::kReader;
  /// Of a region of the session's own tenant: if there is none, its name is reserved for so long; zero: not.
  Duration reserve_for{};

  bool reserves() const { return reserve_for > Duration::zero(); }
};

/// Who waits for a region that is not published yet, or not for it.
class RegionWaits {
 public:
  static constexpr std::size_t kMostOfSession = 64;

  struct Wait {
    SessionId session;
    MapTerms terms;       ///< its owner is named
    bool is_own = false;  ///< the owner is the session's tenant, whoever that is
    TimePoint since{};
    TimePoint deadline{};
  };

  /// Errors  kResourceExhausted: the session waits for as many as it may.
  Result<void> add(RequestId id, Wait wait);
  /// Nothing: nobody waits by this number (any more).
  std::optional<Wait> take(RequestId id);
  const Wait* find(RequestId id) const;
  void drop_all_of(SessionId session);
  /// The session's tenant is another one now: so is whose regions it waits for, where they are its own.
  void follow(SessionId session, const std::string& tenant);
  /// Those that wait for that name, in the order they came.
  std::vector<RequestId> of(const std::string& owner, const std::string& name) const;
  std::vector<RequestId> all() const;
  std::vector<RequestId> expired(TimePoint now) const;
  std::optional<TimePoint> next_deadline() const;

 private:
  void drop_name(RequestId id, const Wait& wait);

  std::map<RequestId, Wait> waits_;
  std::map<std::pair<std::string, std::string>, std::set<RequestId>> by_name_;
  std::map<SessionId, std::set<RequestId>> by_session_;
  std::set<std::pair<TimePoint, RequestId>> by_deadline_;
};

}  // namespace gpumem::core
