#pragma once
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/core/words/types.h"
#include "daemon/core/words/usage.h"

namespace gpumem::core {

/// The state that a broker takes over from the one before it: sessions, the leases of each, and waiting
/// requests with their age. Reclaim requests are not part of it: they end with the broker.
struct Checkpoint {
  template <class IdType>
  struct Gone {
    IdType id;
    bool operator==(const Gone&) const = default;
  };
  struct Session {
    SessionId id;
    Peer peer;
    std::string label;
    std::string tenant;
    TimePoint since{};
    bool ended = false;  ///< its lane is gone; its process may still use what is lent to it
    CommandJobId job{};  ///< that it is in
    bool operator==(const Session&) const = default;
  };
  /// A job, below the tenant of the sessions that are in it, and of its owner.
  struct CommandJob {
    CommandJobId id;
    SessionId owner;  ///< none: gone
    std::uint64_t account = 0;
    std::string label;
    TimePoint since{};
    std::vector<Bytes> limits;        ///< by device
    std::vector<Bytes> reservations;  ///< by device
    Duration waited{};
    std::uint64_t denied = 0;
    std::vector<Bytes> peaks{};  ///< by device: the most that it was lent, as last recorded
    bool operator==(const CommandJob&) const = default;
  };
  /// `id`  also the highest so far.
  using CommandJobGone = Gone<CommandJobId>;
  struct Slice {
    SliceId id;
    SessionId session;
    DeviceIndex device = 0;
    Bytes limit;
    std::string label;
    bool is_private = false;
    bool operator==(const Slice&) const = default;
  };
  struct Lease {
    LeaseId id;
    GrantId grant;
    SessionId session;
    SliceId slice;  ///< none: imported by the session, and let go by the one that it was lent to
    DeviceIndex device = 0;
    Bytes size;
    bool returned = false;  ///< on its way back, to be proved free
    bool fabric = false;    ///< given out by a fabric handle
    bool operator==(const Lease&) const = default;
  };
  struct Import {
    ImportId id;
    SessionId session;
    std::vector<LeaseId> leases;  ///< may include leases that are free already
    bool operator==(const Import&) const = default;
  };
  /// A session has let go of what it had imported, or held, and its process may keep it all the same. Nobody
  /// knows until the memory is proved free.
  struct Suspect {
    SessionId session;
    std::vector<LeaseId> leases;  ///< added to the earlier ones; empty: no leases any more
    bool operator==(const Suspect&) const = default;
  };
  /// Memory of a device that a session declares to hold past the broker.
  struct Declaration {
    SessionId session;
    DeviceIndex device = 0;
    Bytes bytes;
    bool operator==(const Declaration&) const = default;
  };
  /// An IPC handle that can still be redeemed. Not one of a lease that has passed on.
  struct Handle {
    HandleBytes name{};
    SessionId session;  ///< that has given it out
    DeviceIndex device = 0;
    std::vector<LeaseId> leases;
    Bytes offset;
    Bytes bytes;
    TimePoint expires{};
    std::uint64_t uses = 0;  ///< so often can it still be redeemed; 0: it is used up
    bool operator==(const Handle&) const = default;
  };
  /// Of memory that is lent: its owner is the tenant of its leases.
  struct Region {
    RegionId id;
    std::string name;
    DeviceIndex device = 0;
    std::vector<LeaseId> leases;
    Bytes offset;
    Bytes bytes;
    Bytes layout;
    LayoutDigest digest{};
    std::uint64_t sharing = 0;  ///< as core::Sharing
    std::vector<std::string> readers;
    TimePoint since{};
    TimePoint expires{};
    bool kept = false;
    Duration linger = Duration::max();
    TimePoint left = TimePoint::max();
    bool operator==(const Region&) const = default;
  };
  /// `id`  also the highest so far, whether there was such a region or not.
  using RegionGone = Gone<RegionId>;
  /// Of a region that nobody writes to.
  struct RegionSealed {
    RegionId id;
    bool operator==(const RegionSealed&) const = default;
  };
  /// The answer to a request that the client repeats if the answer did not reach it.
  struct Answer {
    SessionId session;
    std::uint64_t request = 0;  ///< the client's own number
    std::uint64_t value = 0;
    bool operator==(const Answer&) const = default;
  };
  static constexpr std::size_t kMostAnswers = 64;  ///< of a session, the latest
  /// A growth that waits. Its client asks for it again at the next broker, and has its place there.
  struct Waiting {
    RequestId id;  ///< of requests that wait the one with the smaller id came first
    SessionId session;
    TimePoint asked{};     ///< for the first time, at whichever broker
    TimePoint deadline{};  ///< after it the place is nobody's
    std::vector<SliceId> slices;
    std::vector<Bytes> min_bytes;  ///< of each slice: it is content with this
    bool operator==(const Waiting&) const = default;
  };
  /// The highest numbers given out so far.
  struct Numbers {
    SessionId session;
    SliceId slice;
    LeaseId lease;
    GrantId grant;
    ImportId import;
    RegionId region;   ///< told by RegionGone
    CommandJobId job;  ///< told by CommandJobGone
    bool operator==(const Numbers&) const = default;
  };
  /// The use of a device by a tenant up to a moment. From then on the tenant has used as much as it has.
  struct Account {
    std::string tenant;  ///< empty: all of the device
    DeviceIndex device = 0;
    TimePoint began{};
    TimePoint until{};
    Usage sums{};
    UseLevels levels{};  ///< from `until` on
    bool operator==(const Account&) const = default;
  };
  using Accounts = std::map<std::pair<std::string, DeviceIndex>, Account>;
  /// Of all devices.
  struct AccountGone {
    std::string tenant;
    bool operator==(const AccountGone&) const = default;
  };
  /// The charge of a session or a job up to a moment. Requests of a job are in CommandJob.
  struct Spent {
    SessionId session;  ///< none: of `job`
    CommandJobId job;
    ByteTime sum;
    TimePoint until{};
    Bytes peak;
    Duration waited{};
    std::uint64_t denied = 0;
    bool operator==(const Spent&) const = default;
  };
  using AllSpent = std::map<std::pair<SessionId, CommandJobId>, Spent>;
  using SessionGone = Gone<SessionId>;
  using SliceGone = Gone<SliceId>;
  using LeaseGone = Gone<LeaseId>;
  using ImportGone = Gone<ImportId>;
  struct WaitingGone {
    SessionId session;
    RequestId id;
    bool operator==(const WaitingGone&) const = default;
  };
  /// One step from a checkpoint to the next: what is new or other than before, or gone.
  using Change = std::variant<Session, SessionGone, Slice, SliceGone, Lease, LeaseGone, Import, ImportGone,
                              Declaration, Numbers, Handle, Region, RegionGone, Waiting, WaitingGone, Suspect,
                              Answer, RegionSealed, CommandJob, CommandJobGone, Account, Spent, AccountGone>;

  std::map<SessionId, Session> sessions;
  std::map<CommandJobId, CommandJob> jobs;
  std::map<SliceId, Slice> slices;
  std::map<LeaseId, Lease> leases;
  std::map<ImportId, Import> imports;
  std::set<std::pair<LeaseId, SessionId>> suspects;  ///< of leases that there are, unless imported again
  std::map<std::pair<SessionId, DeviceIndex>, Declaration> declarations;  ///< of more than nothing
  std::map<HandleBytes, Handle> handles;                                  ///< may include expired ones
  std::map<RegionId, Region> regions;                                     ///< may include expired ones
  std::map<std::pair<SessionId, RequestId>, Waiting> waiting;             ///< may include expired ones
  std::map<RegionId, RegionSealed> sealed;                                ///< of regions that there are
  std::map<SessionId, std::vector<Answer>> answers;  ///< of each session, the latest last
  Accounts accounts;
  AllSpent spent;  ///< of known sessions and jobs
  Numbers last;

  void apply(const Change& change);
  /// The changes that make this checkpoint of an empty one.
  std::vector<Change> changes() const;
  /// Lent on a device to sessions that are known.
  Bytes lent(DeviceIndex device) const;
  bool operator==(const Checkpoint&) const = default;

 private:
  /// What goes with a session. It may name entries that are gone. It is no part of the value.
  struct BySession {
    struct Entries {
      std::set<SliceId> slices;
      std::set<ImportId> imports;
      std::set<HandleBytes> handles;
      std::set<LeaseId> suspects;
    };
    std::map<SessionId, Entries> entries;
    bool is_made = false;
    bool operator==(const BySession&) const { return true; }
  };
  /// Takes what goes with `session` out of the index.
  BySession::Entries take_entries_of(SessionId session);

  void put(const Session& one);
  void put(const CommandJob& one);
  void put(const CommandJobGone& one);
  void put(const Slice& one);
  void put(const Lease& one);
  void put(const Import& one);
  void put(const Suspect& one);
  void put(const Declaration& one);
  void put(const Numbers& one);
  void put(const Handle& one);
  void put(const Region& one);
  void put(const Waiting& one) { waiting.insert_or_assign({one.session, one.id}, one); }
  void put(const SessionGone& one);
  void put(const SliceGone& one) { slices.erase(one.id); }
  void put(const LeaseGone& one);
  void put(const ImportGone& one) { imports.erase(one.id); }
  void put(const RegionGone& one);
  void put(const RegionSealed& one);
  void put(const Answer& one);
  void put(const Account& one) { accounts.insert_or_assign({one.tenant, one.device}, one); }
  void put(const AccountGone& one);
  void put(const Spent& one);
  void put(const WaitingGone& one) { waiting.erase({one.session, one.id}); }

  BySession by_session_;
};

/// The client's own list of its memory, to resume a session of an earlier broker. Each list ascends.
struct Inventory {
  std::vector<SliceId> slices;
  std::vector<LeaseId> leases;
  std::vector<ImportId> imports;
};

/// A session of the broker before.
struct RestoredSession {
  SessionId id;
  Peer peer;
  bool awaited = false;  ///< its client may come back to it
};

}  // namespace gpumem::core
