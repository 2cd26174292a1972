#include <algorithm>
#include <functional>

#include "base/check.h"
#include "daemon/core/broker.h"

// Getting memory back: who is asked is planned in reclaim.cc; here its sessions are asked, and what they
// leave undone has its consequences.

namespace gpumem::core {
namespace {

// A session that said that it has nothing to give is asked again after this many deadlines.
constexpr int kSpentDeadlines = 5;

const char* cause_of(const Ask& ask) {
  if (ask.debt > ask.claims + ask.fairness) return "its tenant uses more than its limit";
  return ask.claims.is_zero() ? "others have a smaller share and wait"
                              : "others wait for what they are guaranteed";
}

}  // namespace

bool Broker::press(TimePoint now) {
  bool refused = false;
  for (DeviceIndex device = 0; device < pressure_.size(); ++device) {
    Pressure& pressure = pressure_[device];
    const std::pair seen(ledger_.revision(device), arbiter_.revision(device));
    if (seen == pressure.seen && !(pressure.due && *pressure.due <= now)) continue;
    pressure.seen = seen;
    const bool nobody_waits = arbiter_.waiting(device) == 0 && ledger_.in_debt(device).empty();
    if (nobody_waits && pressure.idle())
      pressure.due.reset();
    else
      refused |= press(device, now);
  }
  return refused;
}

bool Broker::press(DeviceIndex device, TimePoint now) {
  Pressure& pressure = pressure_[device];
  std::erase_if(pressure.spent, [&](const auto& entry) { return entry.second <= now; });
  pressure.due.reset();
  for (const auto& [id, until] : pressure.spent) wake(device, until);
  for (const auto& [id, sentence] : sentences_) {
    if (sentence.given_up_at > now) wake(device, sentence.given_up_at);
  }
  const ReclaimPlan plan = this->plan(device, true, now);
  ask_sessions(device, plan, now);
  watch_debts(device, now);
  return watch_claims(device, plan, now);
}

ReclaimPlan Broker::plan(DeviceIndex device, bool believe_spent, TimePoint now) const {
  const auto givable = [&, device](TenantId tenant) {
    Bytes sum;
    for (const SessionId id : givers(tenant, device, believe_spent)) sum += held(sessions_.at(id), device);
    // What its sentenced sessions hold is as good as given: only the rest of the burst may be asked for.
    Bytes going;
    for (const auto& [id, sentence] : sentences_) {
      if (sessions_.at(id).tenant == tenant && sentence.given_up_at > now)
        going += held(sessions_.at(id), device);
    }
    return std::min(sum, ledger_.burst(tenant, device).minus(going));
  };
  return plan_reclaim(ledger_, arbiter_, device,
                      {policy_.devices[device].granularity, coming(device, now), givable});
}

// ---- Asking ----

// Sessions of the tenant that could give something back, the one that holds most first.
std::vector<SessionId> Broker::givers(TenantId tenant, DeviceIndex device, bool believe_spent) const {
  std::vector<std::pair<Bytes, SessionId>> all;
  for (const SessionId id : tenants_.at(tenant).sessions) {
    const Session& session = sessions_.at(id);
    if (session.ended || sentences_.contains(id)) continue;
    if (believe_spent && pressure_[device].spent.contains(id)) continue;
    if (const Bytes bytes = held(session, device); !bytes.is_zero()) all.emplace_back(bytes, id);
  }
  std::ranges::sort(all, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<SessionId> ids;
  ids.reserve(all.size());
  for (const auto& [bytes, id] : all) ids.push_back(id);
  return ids;
}

Bytes Broker::held(const Session& session, DeviceIndex device) const {
  Bytes sum;
  for (const auto& [id, slice] : session.slices) {
    if (slice.device == device) sum += slice.held;
  }
  return sum;
}

// What the end of its process brings back.
Bytes Broker::leaving(const Session& session, DeviceIndex device) const {
  Bytes sum;
  for (const LeaseId id : session.leases) {
    const Lease& lease = leases_.at(id);
    if (lease.device == device && lease.state != Charge::kReturning) sum += lease.extent.size;
  }
  return sum;
}

// Being freed, or in the hands of somebody who is being ended.
Bytes Broker::coming(DeviceIndex device, TimePoint now, TenantId of) const {
  Bytes sum = ledger_.charges(of, device)[Charge::kReturning];
  for (const auto& [id, sentence] : sentences_) {
    const Session& session = sessions_.at(id);
    if (sentence.given_up_at > now && is_below(session.tenant, of)) sum += leaving(session, device);
  }
  return sum;
}

void Broker::ask_sessions(DeviceIndex device, const ReclaimPlan& plan, TimePoint now) {
  std::set<SessionId> asked;
  for (const auto& [tenant, one] : plan.asks) {
    Bytes open = one.bytes();
    for (const SessionId id : givers(tenant, device, true)) {
      if (open.is_zero()) break;
      Session& session = sessions_.at(id);
      const Bytes part = std::min(open, held(session, device));
      ask(session, device, part, cause_of(one), now);
      asked.insert(id);
      open -= part;
    }
  }
  std::swap(asked, pressure_[device].asked);
  for (const SessionId id : asked) {
    const auto session = sessions_.find(id);
    if (session != sessions_.end() && !pressure_[device].asked.contains(id))
      ask(session->second, device, {}, "", now);
  }
}

void Broker::ask(Session& session, DeviceIndex device, Bytes bytes, const char* cause, TimePoint now) {
  Asked& asked = session.asked[device];
  const Bytes before = std::exchange(asked.bytes, bytes);
  if (before == bytes) return;
  touch(session.id);
  if (bytes > before) {
    if (before.is_zero()) asked.deadline = now + policy_.devices[device].reclaim.deadline;
    Event& event = note(Event::Kind::kPressure, session, now);
    event.device = device;
    event.bytes = bytes;
    event.deadline = asked.deadline;
    event.words = cause;
    effects_.emplace_back(RingBell{session.id});
  } else if (bytes.is_zero()) {
    note(Event::Kind::kRelieved, session, now).device = device;
  }
}

void Broker::spent(SessionId id, DeviceIndex device, TimePoint now) {
  auto session = live_session(id);
  if (!session || device >= pressure_.size()) return;
  const auto asked = (*session)->asked.find(device);
  if (asked == (*session)->asked.end() || asked->second.bytes.is_zero()) return;
  press_anew();
  pressure_[device].spent[id] = now + kSpentDeadlines * policy_.devices[device].reclaim.deadline;
  settle(now);
}

// ---- What is not given back in time ----

// True if some were refused.
bool Broker::watch_claims(DeviceIndex device, const ReclaimPlan& plan, TimePoint now) {
  auto& lacking = pressure_[device].lacking;
  const auto& claims = arbiter_.claims(device);
  if (plan.claims_lack.is_zero()) {
    lacking.clear();
    return false;
  }
  std::erase_if(lacking, [&](const auto& entry) { return !claims.contains(entry.first); });
  for (const auto& [id, claim] : claims) lacking.try_emplace(id, now);
  const ReclaimPolicy& reclaim = policy_.devices[device].reclaim;
  if (reclaim.escalation == Escalation::kWait) return false;
  std::vector<RequestId> overdue;
  for (const auto& [id, since] : lacking) {
    if (since + reclaim.deadline <= now)
      overdue.push_back(id);
    else
      wake(device, since + reclaim.deadline);
  }
  if (overdue.empty()) return false;
  if (reclaim.escalation == Escalation::kEndSession) {
    for (Bytes lack = plan.claims_lack; escalate(device, lack, &Ask::claims, now);)
      lack = this->plan(device, false, now).claims_lack;
    wake(device, now + reclaim.deadline);  // who does not end either is not waited for for ever
    return false;
  }
  for (const RequestId id : overdue) {
    lacking.erase(id);
    const Request request = *arbiter_.remove(id);
    refuse(request, obstacle(request), now);
  }
  return true;
}

void Broker::watch_debts(DeviceIndex device, TimePoint now) {
  auto& debts = pressure_[device].debts;
  const auto& in_debt = ledger_.in_debt(device);
  std::erase_if(debts, [&](const auto& entry) {
    if (in_debt.contains(entry.first)) return false;
    Event& event = note(Event::Kind::kDebtPaid, now);
    if (const auto tenant = tenants_.find(entry.first); tenant != tenants_.end())
      event.tenant = tenant->second.name;
    event.device = device;
    return true;
  });
  const ReclaimPolicy& reclaim = policy_.devices[device].reclaim;
  for (const TenantId tenant : in_debt) {
    const auto [debt, is_new] = debts.try_emplace(tenant, now);
    if (is_new) {
      Event& event = note(Event::Kind::kDebt, now);
      event.tenant = tenants_.at(tenant).name;
      event.device = device;
      event.bytes = ledger_.debt(tenant, device);
    }
    if (reclaim.escalation != Escalation::kEndSession) continue;
    const TimePoint due = debt->second + reclaim.deadline;
    wake(device, due > now ? due : now + reclaim.deadline);
    while (due <= now && escalate(device, ledger_.debt(tenant, device).minus(coming(device, now, tenant)),
                                  &Ask::debt, now)) {
    }
  }
}

// Whoever should have given most, whatever its sessions said.
bool Broker::escalate(DeviceIndex device, Bytes lack, Bytes Ask::*cause, TimePoint now) {
  if (lack.is_zero()) return false;
  const ReclaimPlan culprits = plan(device, false, now);
  TenantId worst;
  Bytes most;
  for (const auto& [tenant, ask] : culprits.asks) {
    if (ask.*cause > most) {
      worst = tenant;
      most = ask.*cause;
    }
  }
  if (worst) end_one_of(worst, device, std::min(most, lack), now);
  return static_cast<bool>(worst);
}

// Of those that were asked, the smallest session that suffices, else the largest.
void Broker::end_one_of(TenantId tenant, DeviceIndex device, Bytes needed, TimePoint now) {
  std::vector<SessionId> ids = givers(tenant, device, false);
  GPUMEM_CHECK(!ids.empty(), "who can be asked has a session");
  const Pressure& pressure = pressure_[device];
  const auto was_asked = [&](SessionId id) {
    return pressure.asked.contains(id) || pressure.spent.contains(id);
  };
  if (std::ranges::any_of(ids, was_asked)) std::erase_if(ids, std::not_fn(was_asked));
  SessionId chosen = ids.front();
  for (const SessionId id : ids) {
    if (held(sessions_.at(id), device) >= needed) chosen = id;
  }
  const ReclaimPolicy& reclaim = policy_.devices[device].reclaim;
  press_anew();
  sentences_[chosen] = {now + reclaim.grace, now + reclaim.grace + reclaim.deadline};
  Event& event = note(Event::Kind::kTerminating, sessions_.at(chosen), now);
  event.device = device;
  event.bytes = held(sessions_.at(chosen), device);
  event.deadline = now + reclaim.grace;
  event.words = "it did not give back what it was asked for";
  effects_.emplace_back(SignalSession{chosen, Signal::kTerminate});
}

void Broker::carry_out_sentences(TimePoint now) {
  for (auto& [id, sentence] : sentences_) {
    if (sentence.killed || sentence.kill_at > now) continue;
    sentence.killed = true;
    note(Event::Kind::kKilling, sessions_.at(id), now);
    effects_.emplace_back(SignalSession{id, Signal::kKill});
  }
}

// Something else than ledger and line has changed of what plans are made of.
void Broker::press_anew() {
  for (Pressure& pressure : pressure_) pressure.seen = {};
}

void Broker::wake(DeviceIndex device, TimePoint at) {
  auto& due = pressure_[device].due;
  if (!due || at < *due) due = at;
}

std::optional<TimePoint> Broker::pressure_deadline() const {
  std::optional<TimePoint> next;
  const auto consider = [&](std::optional<TimePoint> one) {
    if (one && (!next || *one < *next)) next = one;
  };
  for (const Pressure& pressure : pressure_) consider(pressure.due);
  for (const auto& [id, sentence] : sentences_) {
    if (!sentence.killed) consider(sentence.kill_at);
  }
  return next;
}

// The session is over: nothing is asked of it, or waited for from it.
void Broker::forget_pressure(SessionId session) {
  press_anew();
  sentences_.erase(session);
  for (Pressure& pressure : pressure_) {
    pressure.asked.erase(session);
    pressure.spent.erase(session);
  }
}

}  // namespace gpumem::core
