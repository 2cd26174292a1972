#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/memory/job.h"
#include "tests/promises/process.h"
#include "tests/promises/promises.h"
#include "tests/support/core_world.h"

namespace gpumem::core::promises {

/// A machine in virtual time: broker, driver, processes, and the host's part between them. Processes react by
/// themselves to offers, bells and signals, each as its traits say; what they start is the caller's. After
/// every event of the broker the promises are checked; the first that is broken is kept in fault().
class World : public CoreWorld<WatchedBroker> {
 public:
  static constexpr Bytes kContext = mebibytes(2);
  /// Beside each pool, and never taken past the broker.
  static constexpr Bytes kRoomForContexts = mebibytes(24);

  World(const Policy& policy, std::uint64_t seed);

  // ---- Time ----

  /// Everything that is due happens in its order.
  void pass(Duration time);
  /// To whatever comes next, but by `most` only.
  void pass_to_next(Duration most);
  /// All processes end, and time passes until nothing is left to do.
  void finish();

  // ---- What processes do ----

  Process& spawn(std::uint32_t uid, Traits traits = {});
  /// False: refused. `job`  its session joins it, if there is one of that number of the process's user.
  bool connect(Process& process, CommandJobId job = {});
  /// False: refused. `limit`  zero: none.
  bool begin_job(Process& process, Bytes limit);
  /// For the job that the process has begun.
  RequestId reserve(Process& process, DeviceIndex device, Bytes bytes, Duration wait);
  std::optional<SliceId> slice(Process& process, DeviceIndex device);
  void close_slice(Process& process, DeviceIndex device);
  struct Part {
    DeviceIndex device = 0;
    Bytes least;
    Bytes wanted;
  };
  /// None: it is not connected, or has no slice there.
  RequestId grow(Process& process, const std::vector<Part>& parts, Duration wait);
  RequestId grow(Process& process, Bytes bytes, Duration wait = std::chrono::minutes(10)) {
    return grow(process, {{0, bytes, bytes}}, wait);
  }
  void cancel(RequestId request);
  /// Leases of about so much; as much as it has.
  void give_back(Process& process, DeviceIndex device, Bytes bytes);
  /// Replaces what was declared.
  void declare(Process& process, DeviceIndex device, Bytes bytes);
  /// The process pins so much host memory, in place of what it has pinned, if the broker allows more.
  /// `probes`  it asks again if not.
  void pin(Process& process, Bytes bytes, bool probes);
  void say_spent(Process& process, DeviceIndex device);
  void take_past(Process& process, DeviceIndex device, Bytes bytes);
  /// Of what the broker failed to create again.
  void steal(Process& process, DeviceIndex device, Bytes bytes);
  void give_up_past(Process& process, DeviceIndex device);
  /// For a context of kContext bytes. The process makes it, and says so, as soon as it may.
  RequestId announce_context(Process& process, DeviceIndex device, Duration wait);
  /// Follows announce_context(), unless the process is careless. `says`  a lie to the broker.
  void make_context(Process& process, DeviceIndex device, std::optional<ContextDone::Outcome> says = {});
  /// A region for everybody, of leases of about so much. None: it has none that it may publish.
  std::optional<RegionId> publish(Process& process, DeviceIndex device, Bytes bytes, bool keep);
  /// None: refused.
  std::optional<ImportId> map_region(Process& process, RegionId region);
  void unmap_region(Process& process, ImportId import);
  /// False: it has none of the device.
  bool unmap_one_region(Process& process, DeviceIndex device);
  /// `unmaps`  before it does, all of it.
  void close_lane(Process& process, SessionEnd end, bool unmaps);
  void exit(Process& process);
  void suspend(Process& process) { process.suspended = true; }
  void resume(Process& process);

  // ---- What the administrator does ----

  void remove_region(RegionId region);
  void look(DeviceIndex device, bool regular);
  /// What a process that has a slice on a device holds of it besides.
  void set_context(Bytes bytes) { context_ = bytes; }
  /// Processes make contexts as they come. The driver has kRoomForContexts for them beside each pool.
  void make_contexts_explicit();
  /// From now on the host finds some sessions' lanes unread when they are to be ended.
  void read_late(std::uint64_t seed) { late_.emplace(seed); }
  /// They are made every second, unless they are stopped.
  void stop_regular_looks() { looks_ = false; }
  void start_regular_looks();
  Result<void> apply(const Policy& policy);

  // ---- What can be seen ----

  const std::string& fault() const { return fault_; }
  /// The broker's latest events, one a line.
  std::string history() const;
  const Books& books() const { return books_; }
  const Promises& promises() const { return promises_; }
  std::uint64_t events() const { return events_; }
  const std::map<std::int64_t, std::unique_ptr<Process>>& processes() const { return processes_; }
  bool lives(std::int64_t pid) const { return processes_.contains(pid); }
  struct RegionFacts {
    std::string owner;
    std::string name;
    bool kept = false;
    std::vector<ExtentId> extents;
  };
  /// Those that there are.
  const std::map<RegionId, RegionFacts>& regions() const { return regions_; }
  struct JobFacts {
    std::uint32_t uid = 0;
    bool can_be_ended = true;  ///< the session that began it
  };
  /// All jobs that there are.
  const std::map<CommandJobId, JobFacts>& jobs_begun() const { return jobs_begun_; }
  /// How many contexts have got room of a pool.
  std::uint64_t contexts_of_pool() const { return contexts_of_pool_; }
  /// How often a growth was within what its job had reserved.
  std::uint64_t covered() const { return covered_; }
  /// How often a charge has passed to another session.
  std::uint64_t passed() const { return passed_; }
  /// How often a process pinned more, and how often it was refused that.
  std::uint64_t pins() const { return pins_; }
  std::uint64_t refused_pins() const { return refused_pins_; }
  bool is_granted(RequestId request) const { return granted_.contains(request); }
  bool is_answered(RequestId request) const { return !open_.contains(request); }
  const std::map<RequestId, OpenRequest>& open_requests() const { return open_; }
  Bytes mapped(const Process& process, DeviceIndex device = 0) const;
  Bytes asked(const Process& process, DeviceIndex device = 0) const;
  /// By the job that the process is in, and not on loan.
  Bytes reserved(const Process& process, DeviceIndex device) const;
  /// Pids in the order in which they were sent a signal, ever.
  const std::vector<std::pair<std::int64_t, Signal>>& signals() const { return signals_; }
  /// Pids that were ever asked to give something back.
  const std::set<std::int64_t>& asked_ever() const { return asked_ever_; }
  Bytes past_room(DeviceIndex device) const;

 private:
  using Timer = std::function<void()>;
  void after(Duration time, Timer timer) { timers_.emplace(now + time, std::move(timer)); }
  std::optional<TimePoint> next() const;
  void run_next(TimePoint at);
  Duration up_to(Duration most) {
    return Duration(static_cast<Duration::rep>(random_() % static_cast<std::uint64_t>(most.count() + 1)));
  }

  // Takes what the broker wants done, and checks the promises.
  void absorb();
  friend CoreWorld;
  void before_queueing(const Job& job) {
    if (jobs[job.device].empty()) start_job(job.device);
  }
  void take(SendOffer& effect);
  void take(AnswerGrow& effect);
  void take(AnswerMap&) { fail("P6: nobody has waited for a region"); }
  void take(RingDoorbell& effect);
  void take(SignalSession& effect);
  void take(SignalForeignProcess& effect);
  void take(ForgetSession& effect);
  void take(LookAtDevices&) {}
  void answer_context(const OpenRequest& request, bool has_room);
  void note_granted(const Event& event);
  bool is_covered(const Process& process, const std::vector<Part>& parts) const;
  std::string check_pin(const Process& process, Bytes more, bool is_granted) const;
  using FreedBytes = std::map<std::pair<SessionId, DeviceIndex>, Bytes>;
  FreedBytes follow_published();
  Sharers keepers() const;
  Sharers entangled();
  bool has_left(SessionId session) const;
  std::string check_holder(ExtentId extent, SessionId holder) const;
  void start_job(DeviceIndex device);

  Process* find(std::int64_t pid);
  Process* process_of(SessionId session);
  void deliver(Process& process, Signal signal);
  void react(std::int64_t pid);
  void accept_offers(std::int64_t pid);
  Bytes give_back_one(Process& process, DeviceIndex device, Bytes amount);
  void unmap_all(Process& process);
  void unmap(ExtentId extent, const Mapping& mapping);
  void make_void(ExtentId extent, Mapping& mapping);
  void lose_lane(SessionId session);
  void restore(DeviceIndex device);
  void look_regularly();
  void observe(DeviceIndex device, bool regular);
  void fail(const std::string& what) {
    if (fault_.empty() && !what.empty()) fault_ = what;
  }

  std::mt19937_64 random_;
  std::optional<std::mt19937_64> late_;  ///< which lanes are read late
  std::set<SessionId> held_;             ///< their SIGTERM waits
  Books books_;
  Promises promises_;
  std::multimap<TimePoint, Timer> timers_;
  std::map<std::int64_t, std::unique_ptr<Process>> processes_;
  std::map<SessionId, SessionFacts> sessions_;
  std::map<RequestId, OpenRequest> open_;
  std::set<RequestId> granted_;
  std::map<CommandJobId, JobFacts> jobs_begun_;
  std::map<std::pair<CommandJobId, DeviceIndex>, TimePoint> jobs_used_;  ///< as of Promises::State
  std::set<std::uint32_t> misbehaving_;  ///< uids with a process that is not honest
  Happened happened_;
  struct Published {
    LeaseId lease;
    std::string tenant;           ///< whose region it is part of
    std::set<std::int64_t> pids;  ///< that have ever had it
    bool kept = false;            ///< or was
  };
  std::map<ExtentId, Published> published_;  ///< what is, or was, part of a region
  std::set<ExtentId> left_imported_;         ///< of `published_`: imported by sessions whose lane is gone
  /// Who shares memory with a liar, and when each tenant was last charged for it.
  std::map<std::pair<SessionId, DeviceIndex>, std::map<std::string, TimePoint>> entangled_;
  std::map<RegionId, RegionFacts> regions_;
  std::set<SessionId> clients_;  ///< all that there ever were
  std::uint64_t last_region_ = 0;
  std::uint64_t passed_ = 0;
  std::uint64_t covered_ = 0;
  std::uint64_t contexts_of_pool_ = 0;
  std::uint64_t pins_ = 0;
  std::uint64_t refused_pins_ = 0;
  std::vector<std::pair<std::int64_t, Signal>> signals_;
  std::set<std::int64_t> asked_ever_;
  IdSource<RequestId> request_ids_;
  std::int64_t last_pid_ = 1000;
  std::uint64_t events_ = 0;
  std::deque<Event> history_;
  Bytes context_ = mebibytes(1);
  bool looks_ = true;
  bool elastic_ = false;
  std::string fault_;
};

}  // namespace gpumem::core::promises
