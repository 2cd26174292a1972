#pragma once
#include <array>
#include <boost/container/flat_map.hpp>
#include <boost/container/flat_set.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/core/sessions/outbox.h"
#include "daemon/core/words/checkpoint.h"
#include "daemon/core/words/types.h"
#include "gpumem/result.h"

namespace gpumem::core {

/// A range of one session's memory, for which a handle stands.
struct Handle {
  SessionId holder;
  DeviceIndex device = 0;
  std::vector<LeaseId> leases;  ///< in the range's order
  Bytes offset;                 ///< of the range, in the leases one after the other
  Bytes bytes;
  TimePoint expires;
  std::uint64_t uses = 1;  ///< so often can it still be redeemed
};

/// The handles that were given out. A handle ends when it is used up or expires, and with any of its leases.
class Handles {
 public:
  /// `outbox`  is told of each, for the next broker; outlives it.
  explicit Handles(Outbox& outbox) : outbox_(outbox) {}

  static constexpr std::size_t kMostOfSession = 1024;
  /// So many extents can be told of at once.
  static constexpr std::size_t kMostLeases = 128;

  /// Errors  kResourceExhausted: the holder has as many as it may.
  Result<void> add(const HandleBytes& bytes, Handle handle, TimePoint now);
  /// Nothing: there is none (any more).
  const Handle* find(const HandleBytes& bytes, TimePoint now) const;
  /// Counts one more redemption of the handle.
  void use(const HandleBytes& bytes);
  /// Ends one. False: the holder has none of these bytes.
  bool revoke(SessionId holder, const HandleBytes& bytes);
  /// All of them, expired ones too.
  void add_to(Checkpoint& checkpoint) const;
  /// Ends those that stand for `lease`.
  void drop(LeaseId lease);
  void drop_all_of(SessionId holder);

 private:
  struct Hash {
    std::size_t operator()(const HandleBytes& bytes) const;
  };
  struct Entry {
    HandleBytes bytes{};
    Handle handle;
  };
  void record(const HandleBytes& bytes, const Handle& handle, std::uint64_t uses);
  using Number = std::uint64_t;
  using Numbers = boost::container::flat_set<Number>;
  void drop_expired(SessionId holder, TimePoint now);
  void erase(Number number);

  Outbox& outbox_;
  Number last_ = 0;
  std::map<Number, Entry> handles_;
  boost::unordered_flat_map<HandleBytes, Number, Hash> by_bytes_;
  boost::unordered_flat_map<SessionId, Numbers, std::hash<SessionId>> by_holder_;
  boost::unordered_flat_map<LeaseId, Numbers, std::hash<LeaseId>> by_lease_;
};

/// The users of memory that is lent to another session. Each import covers the leases of one handle.
///
/// A session that has let go stays known with the lease. If the driver does not prove the lease free, that
/// session is as likely as the holder to be the one that keeps it.
class Imports {
 public:
  static constexpr std::size_t kMostOfSession = 1024;

  /// A lease that is imported, or was.
  struct Shared {
    SessionId holder;
    DeviceIndex device = 0;
    Bytes size;
    bool unproved = false;  ///< given back, and the driver does not prove it free
    /// How often each session has imported it; zero: no more.
    boost::container::flat_map<SessionId, std::size_t> users{};
  };
  /// What a session may keep of others' memory.
  struct Kept {
    Bytes used;       ///< by its imports
    Bytes suspected;  ///< released by the session, but not proved free by the driver
    Bytes known;      ///< both, and what it has let go of that is not free yet

    /// What nobody else gets while it lives.
    Bytes held_back() const { return used + suspected; }
  };

  /// Errors  kResourceExhausted: the session has as many as it may.
  Result<void> check_room(SessionId session) const;
  /// `leases`  are shared.
  ImportId add(SessionId session, std::vector<LeaseId> leases);
  /// Restores an import of the earlier broker under its number.
  void restore(ImportId id, SessionId session, std::vector<LeaseId> leases);
  /// The session has let go of the lease, which is shared, at the broker before.
  void restore_suspect(LeaseId lease, SessionId session);
  /// The session lets go. Returns the leases that it does not use any more.
  /// Errors  kNotFound: not its own.
  Result<std::vector<LeaseId>> release(SessionId session, ImportId import);
  /// Of all its imports: it has let go of them, or (`forever`) its process is gone.
  void release_all(SessionId session, bool forever);
  /// The session's imports, and the leases of each.
  const std::map<ImportId, std::vector<LeaseId>>& of(SessionId session) const;
  const std::unordered_map<SessionId, std::map<ImportId, std::vector<LeaseId>>>& all() const {
    return by_session_;
  }
  ImportId last() const { return ids_.last(); }
  /// Imports up to `id` were made by the broker before.
  void skip(ImportId id) { ids_.skip(id); }
  /// Whether it uses any memory.
  bool has_any(SessionId session) const { return by_session_.contains(session); }
  /// Whether it uses any memory, or has used some that is not free yet.
  bool knows(SessionId session) const { return has_any(session) || by_user_.contains(session); }
  /// What the session has let go of and is not free yet.
  std::vector<LeaseId> suspected_of(SessionId session) const;
  /// Whether the session has let go of the lease.
  bool suspects(LeaseId lease, SessionId session) const;
  void add_to(Checkpoint& checkpoint) const;
  /// Moves the leases that `from` has let go of to `to`, a session of the same process.
  void remember_with(SessionId from, SessionId to);

  /// The lease becomes one that can be imported.
  void share(LeaseId lease, const Shared& shared);
  /// None: nobody has ever imported it.
  const Shared* find(LeaseId lease) const;
  /// Whether the driver does not prove it free, after it was given back.
  void set_unproved(LeaseId lease, bool unproved);
  /// Leases that the session uses, or has used and that are not free yet.
  const std::set<LeaseId>& known(SessionId session) const;
  /// Another session holds it now. The one before `may_keep` what it gave back.
  void pass(LeaseId lease, SessionId holder, bool may_keep);
  /// Its memory is free. Returns who has used it.
  std::vector<SessionId> forget(LeaseId lease);

  /// Sessions that keep, or may keep, `holder`'s memory of a device from becoming free, and how much of it.
  const std::map<SessionId, Kept>& keepers(SessionId holder, DeviceIndex device) const;
  /// Memory of other sessions that this session keeps, or may keep, from becoming free.
  Kept kept(SessionId session, DeviceIndex device) const;

 private:
  using Leases = std::unordered_map<SessionId, std::set<LeaseId>>;
  using OnDevice = std::pair<SessionId, DeviceIndex>;
  enum class Count { kOut, kIn };

  void put(ImportId id, SessionId session, std::vector<LeaseId> leases);
  void drop(SessionId user, LeaseId lease);
  // Takes one user's part of a lease out of the sums, or puts it in.
  void count(const Shared& shared, SessionId user, Count how);
  void count_all(const Shared& shared, Count how);
  template <class Change>
  void change_user(Shared& shared, SessionId user, Change change);

  IdSource<ImportId> ids_;
  boost::unordered_flat_map<LeaseId, Shared, std::hash<LeaseId>> shared_;
  std::unordered_map<SessionId, std::map<ImportId, std::vector<LeaseId>>> by_session_;
  Leases by_user_;                                         ///< includes sessions that have let go
  std::map<OnDevice, std::map<SessionId, Kept>> keepers_;  ///< by holder
  std::map<OnDevice, Kept> kept_;                          ///< by user
};

}  // namespace gpumem::core
