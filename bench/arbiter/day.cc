#include "bench/arbiter/day.h"

#include <algorithm>
#include <map>
#include <queue>

#include "base/check.h"
#include "bench/must.h"

namespace gpumem::bench {
namespace {

constexpr Duration kReaction = std::chrono::milliseconds(200);
constexpr std::size_t kSamples = 8640;  // of a day: every 10 s of 24 h
constexpr std::size_t kParts = 144;

double count(Bytes bytes) { return static_cast<double>(bytes.count); }

enum class Kind { kArrive, kGiveUp, kEnd, kYield };
struct Event {
  TimePoint at;
  std::uint64_t number = 0;  ///< what is planned first happens first
  Kind kind = Kind::kArrive;
  SessionIndex session = 0;
  bool operator>(const Event& other) const { return std::tie(at, number) > std::tie(other.at, other.number); }
};

class Day {
 public:
  Day(const Trace& trace, Strategy& strategy, bool keeps_guarantees)
      : trace_(trace),
        strategy_(strategy),
        keeps_guarantees_(keeps_guarantees),
        fairness_(trace),
        clients_(trace.sessions.size()),
        present_(trace.options.devices),
        totals_(trace.options.devices) {
    result_.parts.resize(kParts);
  }

  DayResult run() {
    for (SessionIndex i = 0; i < trace_.sessions.size(); ++i)
      plan(trace_.sessions[i].arrival, Kind::kArrive, i);
    while (!events_.empty()) step();
    sample_until(TimePoint(trace_.options.day));
    if (!strategy_.is_as_new())
      result_.broken.push_back("something is charged after the last session has ended");
    finish();
    return std::move(result_);
  }

 private:
  enum class State { kAbsent, kWaits, kHolds, kGone };
  struct Client {
    State state = State::kAbsent;
    Bytes held;
    bool asks = false;
    bool is_claim = false;    ///< its first request was within the guarantee
    bool will_yield = false;  ///< it knows that it is asked
  };
  // A tenant's sessions on one device.
  struct Present {
    std::size_t sessions = 0;
    Bytes demand;
    Bytes held;
  };
  struct Total {
    Bytes demand;
    Bytes held;
  };

  const SimulatedSession& session(SessionIndex index) const { return trace_.sessions[index]; }
  void plan(TimePoint at, Kind kind, SessionIndex session) { events_.push({at, ++planned_, kind, session}); }

  void step() {
    const auto deadline = strategy_.next_deadline();
    const Event next = events_.top();
    if (deadline && *deadline < next.at) {
      ticks_at_once_ = *deadline <= now_ ? ticks_at_once_ + 1 : 0;
      require(ticks_at_once_ < 1000, "time passes", "a deadline stays in the past");
      pass(std::max(now_, *deadline));
      strategy_.tick(now_);
    } else {
      events_.pop();
      pass(next.at);
      happen(next);
    }
    settle();
  }
  void happen(const Event& event) {
    switch (event.kind) {
      case Kind::kArrive: return arrive(event.session);
      case Kind::kGiveUp: return give_up(event.session);
      case Kind::kEnd: return leave(event.session);
      case Kind::kYield: return yield(event.session);
    }
  }

  void arrive(SessionIndex index) {
    const SimulatedSession& one = session(index);
    Client& client = clients_[index];
    Present& present = present_[one.device][one.tenant];
    client.is_claim = one.least <= guarantee(index).minus(present.held);
    client.state = State::kWaits;
    ++waiting_;
    ++present.sessions;
    demand(index, present, [&](Bytes& bytes) { bytes += one.size; });
    strategy_.open(index, now_);
    ask(index, one.least);
    plan(now_ + one.patience, Kind::kGiveUp, index);
  }
  void ask(SessionIndex index, Bytes least) {
    clients_[index].asks = true;
    strategy_.ask(index, session(index).size - clients_[index].held, least, now_);
  }
  void give_up(SessionIndex index) {
    if (clients_[index].state != State::kWaits) return;
    strategy_.withdraw(index, now_);
    refused(index, session(index).patience);
  }
  void refused(SessionIndex index, Duration waited) {
    clients_[index].asks = false;
    ++result_.gave_up;
    if (clients_[index].is_claim) ++result_.guaranteed_gave_up;
    if (is_large(index)) ++result_.large_gave_up;
    note_wait(index, waited);
    leave(index);
  }
  void note_wait(SessionIndex index, Duration waited) {
    --waiting_;
    result_.waits.push_back(std::chrono::duration<double>(waited).count());
    if (is_large(index)) result_.large_waits.push_back(result_.waits.back());
    if (!clients_[index].is_claim) return;
    result_.guaranteed_waits.push_back(result_.waits.back());
    if (keeps_guarantees_ && waited > Duration::zero()) ++claims_that_waited_;
  }
  void leave(SessionIndex index) {
    const SimulatedSession& one = session(index);
    Client& client = clients_[index];
    auto& tenants = present_[one.device];
    Present& present = tenants[one.tenant];
    hold(index, present, [&](Bytes& bytes) { bytes -= client.held; });
    demand(index, present, [&](Bytes& bytes) { bytes -= one.size; });
    if (--present.sessions == 0) tenants.erase(one.tenant);
    client = {.state = State::kGone, .held = {}};
    strategy_.close(index, now_);
  }

  // What the strategy has decided, and what the sessions do upon it.
  void settle() {
    for (bool more = true; more;) {
      more = false;
      for (const Strategy::Outcome& one : strategy_.take_outcomes()) {
        more = true;
        if (one.granted.is_zero()) {
          turn_down(one.session);
        } else {
          receive(one.session, one.granted);
        }
      }
      for (const SessionIndex index : strategy_.take_pressed()) {
        if (!std::exchange(clients_[index].will_yield, true)) plan(now_ + kReaction, Kind::kYield, index);
      }
    }
  }
  void receive(SessionIndex index, Bytes granted) {
    const SimulatedSession& one = session(index);
    Client& client = clients_[index];
    GPUMEM_CHECK(client.asks, "a session is granted what it asks for");
    client.asks = false;
    hold(index, present_[one.device][one.tenant], [&](Bytes& bytes) { bytes += granted; });
    client.held += granted;
    if (client.state == State::kWaits) {
      client.state = State::kHolds;
      note_wait(index, now_ - one.arrival);
      plan(now_ + one.duration, Kind::kEnd, index);
    }
    top_up(index);
  }
  void top_up(SessionIndex index) {
    const SimulatedSession& one = session(index);
    const Bytes rest = one.size.minus(clients_[index].held);
    if (!clients_[index].asks && !rest.is_zero()) ask(index, std::min(rest, one.least));
  }
  void turn_down(SessionIndex index) {
    Client& client = clients_[index];
    if (client.state == State::kWaits) return refused(index, now_ - session(index).arrival);
    client.asks = false;
  }
  void yield(SessionIndex index) {
    Client& client = clients_[index];
    client.will_yield = false;
    if (client.state != State::kHolds) return;
    const SimulatedSession& one = session(index);
    const Bytes given = strategy_.yield(index, one.least, now_);
    if (given.is_zero()) return;
    hold(index, present_[one.device][one.tenant], [&](Bytes& bytes) { bytes -= given; });
    client.held -= given;
    ++result_.yields;
    result_.yielded += count(given);
    top_up(index);
  }

  bool is_large(SessionIndex index) const {
    return session(index).size.count >= trace_.options.pool.count / 10;
  }
  Bytes guarantee(SessionIndex index) const {
    const SimulatedTenant& tenant = trace_.tenants[session(index).tenant];
    return tenant.home == session(index).device ? tenant.guarantee : Bytes{};
  }
  template <class Change>
  void hold(SessionIndex index, Present& present, Change&& change) {
    change(present.held);
    change(totals_[session(index).device].held);
    change(held_);
    if (totals_[session(index).device].held > trace_.options.pool) ++overfull_;
  }
  template <class Change>
  void demand(SessionIndex index, Present& present, Change&& change) {
    change(present.demand);
    change(totals_[session(index).device].demand);
  }

  void pass(TimePoint to) {
    sample_until(std::min(to, TimePoint(trace_.options.day)));
    const TimePoint end = std::min(to, TimePoint(trace_.options.day));
    if (end > now_) held_time_ += count(held_) * std::chrono::duration<double>(end - now_).count();
    now_ = std::max(now_, to);
  }
  void sample_until(TimePoint to) {
    for (; sampled_ < kSamples; ++sampled_) {
      if (TimePoint(trace_.options.day * static_cast<Duration::rep>(sampled_) / kSamples) >= to) return;
      sample();
    }
  }
  void sample();
  void finish();

  const Trace& trace_;
  Strategy& strategy_;
  const bool keeps_guarantees_;
  Fairness fairness_;
  std::vector<Client> clients_;
  std::vector<std::map<std::uint32_t, Present>> present_;  ///< by device
  std::vector<Total> totals_;                              ///< by device
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t planned_ = 0;
  TimePoint now_{};
  Bytes held_;
  double held_time_ = 0;
  std::size_t waiting_ = 0;
  std::size_t sampled_ = 0;
  std::size_t contended_ = 0;
  double contended_held_ = 0;
  std::size_t overfull_ = 0;
  std::size_t ticks_at_once_ = 0;
  std::size_t claims_that_waited_ = 0;
  std::vector<Fairness::Standing> standings_;
  DayResult result_;
};

void Day::sample() {
  DayResult::Part& part = result_.parts[sampled_ * kParts / kSamples];
  constexpr double kEach = static_cast<double>(kParts) / kSamples;
  const double all = count(trace_.options.pool) * static_cast<double>(trace_.options.devices);
  part.waiting += kEach * static_cast<double>(waiting_);
  part.held += kEach * count(held_) / all;
  for (DeviceIndex device = 0; device < totals_.size(); ++device) {
    part.demand += kEach * count(totals_[device].demand) / all;
    if (totals_[device].demand <= trace_.options.pool) continue;
    ++contended_;
    contended_held_ += count(totals_[device].held);
    standings_.clear();
    for (const auto& [tenant, present] : present_[device])
      standings_.push_back({tenant, present.demand, present.held});
    fairness_.sample(device, standings_);
  }
}

void Day::finish() {
  const double pool = count(trace_.options.pool);
  const auto devices = static_cast<double>(trace_.options.devices);
  result_.use = held_time_ / (pool * devices * std::chrono::duration<double>(trace_.options.day).count());
  result_.contended = static_cast<double>(contended_) / (kSamples * devices);
  if (contended_ != 0) result_.contended_use = contended_held_ / (pool * static_cast<double>(contended_));
  result_.fairness = fairness_.result();
  std::ranges::sort(result_.waits);
  std::ranges::sort(result_.large_waits);
  std::ranges::sort(result_.guaranteed_waits);
  const auto complain = [&](std::size_t times, const char* words) {
    if (times != 0) result_.broken.push_back(std::to_string(times) + " times: " + words);
  };
  complain(overfull_, "more was held of a device than its pool");
  complain(claims_that_waited_, "a request within its tenant's guarantee waited");
  complain(waiting_, "a session was never answered");
}

}  // namespace

DayResult play(const Trace& trace, Strategy& strategy, bool keeps_guarantees) {
  return Day(trace, strategy, keeps_guarantees).run();
}

}  // namespace gpumem::bench
