#pragma once
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "daemon/core/reclaim_plan.h"
#include "daemon/core/state.h"
#include "daemon/core/terminations.h"

namespace gpumem::core {

/// Gets memory back that is lent: asks sessions, waits for them, and ends those that leave undone what they
/// were asked for, where the device's policy says so. Bytes that should come back have an owner until the
/// driver has proved them free: the session that pins them, whether its lane lives or not, as long as its
/// process does.
///
/// Invariant  nobody is ended who was not asked, itself, a whole deadline before; who cannot be asked any
/// more,
///            because its lane is gone, is waited for as long.
class Reclaimer {
 public:
  explicit Reclaimer(State& state);

  /// Plans anew for the devices where something has changed: asks, relieves, ends. Answers the claims that
  /// are to be refused. Takes time by the number of those asked; little if nobody waits or owes.
  std::vector<RequestId> update(TimePoint now);
  /// Kills those whose grace is over.
  void tick(TimePoint now) { terminations_.carry_out(now); }
  std::optional<TimePoint> next_deadline() const;

  /// The session says that it has no more to give: the rest is asked of others too.
  void spent(Session& session, DeviceIndex device, TimePoint now);
  /// The session has given back memory of the device, or its lane has broken: what is not proved free stays
  /// due.
  void note_pinned(Session& session, DeviceIndex device);
  /// The same for those who may keep memory of the session.
  void note_keepers(const Session& session, DeviceIndex device);
  /// Whether the session is asked for memory of the device by force, or has been for a need that is still
  /// there.
  bool presses(const Session& session, DeviceIndex device) const;
  /// Its process is gone.
  void exited(SessionId session);
  /// The session is over.
  void forget(SessionId session);
  /// Something else than ledger and queues has changed of what plans are made of.
  void replan();

  /// Asked for and outstanding.
  Bytes asked_back(DeviceIndex device) const;
  const std::set<SessionId>& asked(DeviceIndex device) const { return devices_[device].asked; }
  /// Asked for requests of their own tenants.
  const std::set<SessionId>& asked_for_mates(DeviceIndex device) const { return devices_[device].mates; }
  /// On its way back, or in the hands of a process that is being ended; below `of`, or (none) of the whole
  /// device.
  Bytes coming(DeviceIndex device, TimePoint now, TenantId of = {}) const;
  const Terminations& terminations() const { return terminations_; }

 private:
  struct Device {
    std::set<SessionId> asked;
    std::map<RequestId, TimePoint> lacking;   ///< claims, since when they lack memory
    std::map<TenantId, TimePoint> debts;      ///< since when
    std::map<SessionId, TimePoint> spent;     ///< believed to have nothing to give, until then
    std::set<SessionId> liable;               ///< whose request has a liability
    std::set<SessionId> mates;                ///< asked for requests of their own tenants
    std::map<SessionId, TimePoint> late;      ///< of those, who did not answer in time; until then
    std::map<SessionId, TimePoint> helpless;  ///< of those, who said that they have nothing; until then
    std::optional<TimePoint> due;
    std::pair<std::uint64_t, std::uint64_t> seen{};  ///< revisions that the latest plan was made of
    bool idle() const {
      return asked.empty() && lacking.empty() && debts.empty() && spent.empty() && liable.empty() &&
             mates.empty();
    }
  };
  // What one session is to be asked for.
  struct Share {
    Bytes bytes;
    Bytes own;  // as ReclaimRequest has it
    bool forced = false;
    const char* cause = "";
    Bytes declared{};  // the same
  };
  enum class Belief { kSpentHaveNothing, kSpentHaveSome };
  // A session that said that it has nothing to give is asked again after this many deadlines.
  static constexpr int kSpentDeadlines = 5;

  std::vector<RequestId> update(DeviceIndex device, TimePoint now);
  ReclaimPlan plan(DeviceIndex device, Belief belief, TimePoint now) const;
  MateTargets plan_mates(DeviceIndex device, const ReclaimPlan& plan, TimePoint now) const;
  ReclaimTargets plan_debt(DeviceIndex device, TenantId debtor, Belief belief, TimePoint now) const;
  template <class Plan>
  auto with_facts(DeviceIndex device, std::function<Bytes(TenantId)> coming, Belief belief, TimePoint now,
                  Plan plan) const;
  ReclaimTargets plan_debts(DeviceIndex device, Belief belief, TimePoint now) const;

  // Who could give something back.
  bool is_victim(const Session& session, DeviceIndex device, ReclaimCause cause, Belief belief) const;
  Bytes answerable(const Session& session, DeviceIndex device) const;
  Bytes pinned(const Session& session, DeviceIndex device) const;
  std::vector<std::pair<Bytes, SessionId>> victims(TenantId tenant, DeviceIndex device) const;
  Bytes givable(TenantId tenant, DeviceIndex device, ReclaimCause cause, Belief belief, TimePoint now) const;
  std::vector<std::pair<Bytes, SessionId>> declarers(TenantId tenant, DeviceIndex device) const;

  // Asking.
  using Shares = std::map<SessionId, Share>;
  void ask_sessions(DeviceIndex device, const ReclaimTargets& targets, TimePoint now);
  void ask_keepers(DeviceIndex device, Shares& shares) const;
  void ask(Session& session, DeviceIndex device, const Share& share, TimePoint now);
  void tell(Session& session, DeviceIndex device, const char* cause, TimePoint now);

  // For requests of their own tenants.
  void ask_mates(DeviceIndex device, const MateTargets& targets, TimePoint now);
  std::vector<std::pair<Bytes, SessionId>> mates_of(TenantId tenant, DeviceIndex device,
                                                    const MateTarget& target) const;
  bool may_be_asked(const Session& session, DeviceIndex device, RequestId request) const;
  void ask_mate(Session& session, DeviceIndex device, Bytes bytes, TimePoint now);
  void renew_mates(DeviceIndex device, TimePoint now);

  // What is owed of earlier requests.
  void renew_liabilities(DeviceIndex device, TimePoint now);
  void note(Session& session, DeviceIndex device);
  bool is_stale(const ReclaimRequest::Liability& liability, const Session& session, DeviceIndex device) const;

  // What is left undone.
  std::vector<RequestId> watch_claims(DeviceIndex device, const ReclaimPlan& plan, TimePoint now);
  bool lacks_memory(RequestId claim, DeviceIndex device, const ReclaimPlan& plan) const;
  void watch_debts(DeviceIndex device, TimePoint now);
  void end_for_claims(DeviceIndex device, const ReclaimPlan& asked, TimePoint now);
  void end_for_debt(DeviceIndex device, TenantId debtor, TimePoint now);
  template <class Amount>
  bool end_one(DeviceIndex device, const ReclaimTargets& targets, Bytes lack, TimePoint now, Amount amount);
  void end_keepers(const Session& holder, DeviceIndex device, Bytes needed, TimePoint now);
  const Session* choose(TenantId tenant, DeviceIndex device, Bytes needed, TimePoint now) const;
  std::optional<TimePoint> due_of(const Session& session, DeviceIndex device) const;
  std::optional<TimePoint> liable_until(const Session& session, DeviceIndex device) const;
  void wake(DeviceIndex device, TimePoint at);
  void wake_for(TenantId tenant, DeviceIndex device, TimePoint now);

  State& state_;
  Terminations terminations_;
  std::vector<Device> devices_;
};

}  // namespace gpumem::core
