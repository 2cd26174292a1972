#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "daemon/core/memory/job.h"
#include "daemon/core/memory/refill.h"
#include "daemon/core/words/types.h"

namespace gpumem::core {

/// The physical side of one device. Assembles the extents of granted requests, and takes returned extents
/// back. A returned extent is destroyed; its bytes are free only once as many could be created again. A proof
/// that fails is repeated, with pauses, until it succeeds. The bytes of the pool that the driver does not
/// give are missing, and created when it does (Refill).
///
/// The store of an elastic pool creates memory on demand. There a returned extent is proved free by the used
/// bytes of the device, and is not created again: its bytes are dormant.
///
/// The number of extents, lent or not, is bounded. The last quarter is made for guaranteed memory alone.
class Store {
 public:
  /// The results since the last call of advance().
  struct Progress {
    struct Assembly {
      RequestId request;
      std::vector<Extent> extents;
    };
    std::vector<Assembly> assembled;
    std::vector<RequestId> unobtainable;  ///< the driver does not give the memory
    std::vector<RequestId> too_many;      ///< the memory is there, but there may be no more extents
    /// Bytes of the device that are free, by look(). Nothing: the driver does not tell.
    std::vector<std::pair<RequestId, std::optional<Bytes>>> looked;
    std::vector<RequestId> released;   ///< by release()
    std::vector<LeaseId> freed;        ///< proved free
    std::vector<LeaseId> quarantined;  ///< destroyed, but the driver has not given the memory back
    std::vector<Job> jobs;             ///< to be run
    std::vector<JobId> hurried;        ///< these or earlier jobs that a request waits for
  };

  /// Between two attempts to prove the same memory free. The pauses double, from Refill::kFirstPause on.
  static constexpr Duration kLongestPause = Refill::kLongestPause;

  /// `most_extents`  on this device.
  Store(DeviceIndex device, Bytes pool, Bytes granularity, IdSource<ExtentId>& extents, IdSource<JobId>& jobs,
        std::size_t most_extents = Pool::kAnyNumber);

  const SizeClasses& classes() const { return pool_.classes(); }

  /// The broker before has lent `bytes` of the pool. Called once, before anything else.
  void adopt(Bytes bytes);
  /// One of the extents of these bytes.
  void adopt_extent() { ++extents_; }
  /// The pool grows only while the device keeps `bytes` free besides, as far as the driver tells. Default: 0.
  /// `for_others`  so many more, but where the pool grows by what is promised (set_promised_demand()).
  void keep_free(Bytes bytes, Bytes for_others = {}) {
    kept_free_ = bytes;
    for_others_ = for_others;
  }
  /// As keep_free(), for contexts that clients are about to make. The larger of the two counts.
  void expect_contexts(Bytes bytes) { expected_ = bytes; }
  /// Whether the pool is elastic. Default: false. A pool that becomes elastic keeps its memory until
  /// shrink().
  void set_elastic(bool is_elastic, TimePoint now);
  bool is_elastic() const { return elastic_; }
  /// Of an elastic pool: creates as much of what is missing as `bytes`, and no more. `first`  the bytes that
  /// one request lacks them for, with its preference (want()): they are created first, so that they serve it
  /// without further driver calls. Zero: no request.
  void set_demand(Bytes bytes, Bytes first, Bytes largest, TimePoint now);
  /// As set_demand(), for memory that guarantees need.
  void set_promised_demand(Bytes bytes, TimePoint now);
  /// Warm extents of `bytes`, which the ledger has free, leave the pool. They are missing, and dormant.
  /// False: not now, because something else is under way.
  bool shrink(Bytes bytes);
  /// shrink() has not ended.
  bool is_shrinking() const { return shrinking_; }
  /// Asks for extents of `bytes`, which the ledger has reserved, preferably (Pool::take) none over `largest`;
  /// or for one (kOneExtent). `guaranteed`  the tenant has no more than its guarantee with them.
  void want(RequestId request, Bytes bytes, Bytes largest = {}, bool guaranteed = false);
  /// Cancels the request's want() or release(). False: it is unknown, or was served already.
  bool withdraw(RequestId request);
  /// Asks the driver how much of the device is free. One job serves all requests that came before it.
  void look(RequestId request);
  /// Extents of `bytes`, which the ledger has free, leave the pool for the driver. They are missing, and not
  /// created again until reopen().
  void release(RequestId request, Bytes bytes);
  void reopen(Bytes bytes, TimePoint now);
  /// Takes extents back that were assembled, but never left the broker.
  void put_back(const std::vector<Extent>& extents);
  /// Takes a lent extent back. As far as the broker knows, nobody uses it. An extent without an id is not in
  /// the broker's hands, so there is nothing to destroy. `is_promised`  a guarantee needs the bytes again.
  /// `only_user`  no other session has used the memory; none: one has. What one session alone has used is
  /// proved together, by larger extents.
  void take_back(LeaseId lease, Extent extent, bool is_promised = false, SessionId only_user = {});
  void finish(const JobResult& result, TimePoint now);
  /// Repeats failed creations now: a process that may have used the memory is gone.
  void retry_now(TimePoint now);
  /// retry_now(), with the proof of `lease` before those of others: what the process let go of proves the
  /// leases that it knew.
  void retry_now(LeaseId lease, TimePoint now);

  Progress advance(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  Bytes warm() const { return pool_.warm() + held_; }
  /// Bytes of the pool that are nobody's charge and that the driver does not give.
  Bytes missing() const { return refill_.missing(); }
  /// The part of missing() for which there is no demand.
  Bytes dormant() const { return refill_.dormant(); }
  /// The part of missing() that is created when there is a demand.
  Bytes obtainable() const { return refill_.obtainable(); }
  /// The part of missing() that the driver was asked for and does not give.
  Bytes refused() const { return refill_.is_exhausted() ? refill_.open() : Bytes{}; }
  /// `free`  bytes of the device, by the driver.
  void note_free(Bytes free, TimePoint now) {
    room_ = free.minus(kept());
    room_seen_ = now;
  }
  /// The missing bytes that can be created, as far as it is known.
  Bytes creatable() const;
  /// Whether `bytes` more are about to be created, as far as it is known.
  bool is_creating(Bytes bytes) const;
  /// The last extents that failed did so for want of descriptors.
  bool lacks_files() const { return lacks_files_; }
  /// Bytes of all jobs that were started so far, and of those that have ended: what they create, prove free
  /// or release. Between two moments, the driver's figure differs from the ledger's by at most the bytes
  /// started up to the second moment that had not ended at the first.
  Bytes started() const { return started_bytes_; }
  Bytes ended() const { return ended_bytes_; }
  /// No job is under way, and the stock is as good as it gets.
  bool settled() const {
    return begun_ && in_flight_.empty() && wanted_.empty() && returned_.empty() && looking_.empty();
  }

 private:
  // One extent to create; with a lease, the proof that the lease's memory is free.
  struct Attempt {
    Extent extent;
    LeaseId lease;
    bool refills = false;  ///< the bytes are missing
    bool by_use = false;   ///< the proof creates nothing
    ExtentId merged{};     ///< created for several leases; the extent itself only if that fails
  };
  struct Flight {
    std::vector<Attempt> attempts;
    std::vector<Extent> merged{};  ///< what is created for several leases at once
    bool reshapes = false;         ///< breaks, merges or releases warm extents, or only looks
    bool refills = false;          ///< its last attempts are a round of the refill
    bool looks = false;
    bool releases = false;
    bool proves_anew = false;  ///< leases that no job has tried before
    Bytes released{};          ///< by a job that `releases`
    RequestId request{};       ///< gets the created extents; none: the pool gets them
  };
  struct Wish {
    RequestId request;
    Bytes bytes;
    Bytes largest;
    bool guaranteed = false;
    bool is_released = false;    ///< its extents leave the pool
    JobId waits_for{};           ///< the job that makes what it lacks
    std::vector<Extent> held{};  ///< the extents it has already
    int failures = 0;            ///< failed creations for it
  };
  struct Returned {
    LeaseId lease;
    Extent extent;
    bool is_promised = false;
    SessionId only_user{};
  };
  // Leases that one created extent proves free.
  using Group = std::span<const Returned>;

  void assemble(Progress& progress);
  std::optional<std::vector<Extent>> take(Wish& wish);
  bool make(Progress& progress, Wish& wish);
  bool release(Progress& progress, const Wish& wish);
  bool is_proved(const Attempt& attempt, const JobResult& result,
                 const std::unordered_set<ExtentId>& failed) const;
  Job::Step begin_proof(Attempt& attempt, bool is_promised);
  bool are_proofs_due(TimePoint now) const;
  /// Until the pool has got all it could, creating an extent proves nothing.
  bool can_prove() const { return elastic_ || made_; }
  Bytes kept() const { return std::max(kept_free_ + (is_promised_ ? Bytes{} : for_others_), expected_); }
  void add_room(Bytes bytes) {
    if (room_) *room_ += bytes;
  }
  std::optional<TimePoint> next_look() const;
  void look(Progress& progress, TimePoint now);
  void end_look(const JobResult& result, TimePoint now);
  bool is_held_back_by_files(const Wish& wish) const;
  std::size_t room(bool guaranteed) const;
  bool claim(Progress& progress, Wish& wish);
  bool comes(const Wish& wish) const;
  static Bytes bytes_of(const Flight& flight);
  void forget_coming(Bytes size, JobId job);
  bool reshaping() const { return reshapes_ != 0; }
  void hold(Wish& wish, const std::vector<Extent>& extents);
  void let_go(Wish& wish);
  void hand_over(const Flight& flight, std::vector<Extent> created);
  void reclaim(Progress& progress);
  std::vector<Group> groups_of(std::span<const Returned> all) const;
  void begin_proofs(Progress& progress, std::span<const Group> groups);
  void begin_merged_proof(Group group, Flight& flight, std::vector<Job::Step>& steps);
  bool is_retry_due(TimePoint now) const;
  bool is_look_due(TimePoint now) const;
  void retry(Progress& progress, TimePoint now);
  void begin_urgent_refill(Progress& progress);
  void begin_refill(Flight& flight, std::vector<Job::Step>& steps);
  void end_refill(const Flight& flight, const JobResult& result, const std::unordered_set<ExtentId>& failed,
                  TimePoint now);
  void put_off(const Attempt& attempt, TimePoint now);
  void pause_proofs(bool progress, bool were_waiting, TimePoint now);
  JobId start(Progress& progress, Job::Turn turn, std::vector<Job::Step> steps, Flight flight);
  /// Destroys, creates `first`, and creates the rest with a job for each, so that it can be used one by one.
  JobId start(Progress& progress, Job::Turn turn, Job::Step first, std::span<const Extent> rest,
              RequestId request = {});

  DeviceIndex device_;
  Pool pool_;
  IdSource<ExtentId>& extent_ids_;
  IdSource<JobId>& job_ids_;
  std::vector<Wish> wanted_;
  std::vector<RequestId> looking_;  ///< look() is still to be started
  std::vector<RequestId> looked_;   ///< look() is under way: one job for all
  bool looks_ = false;              ///< such a job is under way
  Bytes look_reshaped_;             ///< free until jobs that began before that look have created it
  std::vector<Returned> returned_;
  std::unordered_map<JobId, Flight> in_flight_;
  /// By size, the jobs that create an extent for the pool that no wish claims.
  std::map<Bytes, std::set<JobId>> coming_;
  std::size_t reshapes_ = 0;      ///< jobs in flight that reshape
  Bytes reshaped_;                ///< by these jobs
  Bytes overtaking_;              ///< reshaped while jobs in order were in flight, since one of them ended
  Bytes most_reshaped_;           ///< when either reaches this, no reshape begins before some have ended
  Bytes held_;                    ///< by all wishes
  std::vector<Attempt> put_off_;  ///< proofs that failed; to be tried again at retry_at_
  std::unordered_set<LeaseId> preferred_;  ///< their proofs are tried before other failed ones
  Progress done_;                          ///< freed and quarantined since the last advance
  Duration pause_ = Refill::kFirstPause;   ///< of the proofs
  TimePoint retry_at_{};
  Refill refill_;
  Bytes kept_free_;
  Bytes for_others_;
  Bytes expected_;
  std::optional<Bytes> room_;
  TimePoint room_seen_{};
  Bytes proved_;  ///< by use, since the last advance
  bool elastic_ = false;
  bool shrinking_ = false;
  bool is_promised_ = false;  ///< the demand is set_promised_demand()'s
  Bytes started_bytes_;
  Bytes ended_bytes_;
  std::size_t most_extents_;
  std::size_t extents_ = 0;  ///< lent, warm, in flight, and to be proved
  bool lacks_files_ = false;
  bool changed_ = true;  ///< since the last advance()
  bool begun_ = false;   ///< the pool's first creation has been started
  bool made_ = false;    ///< and has got all it could: any further creation proves other memory free
};

}  // namespace gpumem::core
