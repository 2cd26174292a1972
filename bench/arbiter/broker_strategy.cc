#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "bench/arbiter/instant_driver.h"
#include "bench/arbiter/strategy.h"
#include "bench/must.h"

namespace gpumem::bench {
namespace {

core::Policy policy_of(const Trace& trace, bool lends, Duration aging) {
  const TraceOptions& options = trace.options;
  core::Policy policy;
  for (DeviceIndex i = 0; i < options.devices; ++i) {
    core::DevicePolicy device{"GPU-" + std::to_string(i), "Simulated", options.pool, options.pool,
                              kGranularity};
    device.reclaim.lend_guarantees = lends;
    policy.devices.push_back(std::move(device));
  }
  for (std::uint32_t i = 0; i < trace.tenants.size(); ++i) {
    const SimulatedTenant& tenant = trace.tenants[i];
    core::TenantRule rule{.name = "t" + std::to_string(i), .uid = i, .gid = {}, .quotas = {}};
    rule.quotas.assign(options.devices, {.guarantee = {}, .limit = options.pool, .weight = tenant.weight});
    rule.quotas[tenant.home].guarantee = tenant.guarantee;
    policy.tenants.push_back(std::move(rule));
  }
  policy.max_sessions = policy.max_sessions_per_tenant = trace.sessions.size();
  policy.max_wait = std::chrono::hours(1000);
  policy.aging = aging;
  must(core::check(policy), "the policy of the trace");
  return policy;
}

class BrokerStrategy final : public Strategy {
 public:
  BrokerStrategy(const Trace& trace, bool lends, Duration aging)
      : trace_(trace), broker_(policy_of(trace, lends, aging)), clients_(trace.sessions.size()) {
    broker_.tick({});
    do_effects(broker_, {}, [](core::Effect&) {});
    require(broker_.settled(), "the pools are created");
  }

  void open(SessionIndex index, TimePoint now) override {
    const SimulatedSession& session = trace_.sessions[index];
    const core::Peer peer{
        .pid = 1000 + index, .uid = session.tenant, .gids = {session.tenant}, .command = "train"};
    Client& client = clients_[index];
    client.session = must(broker_.open_session(peer, "", now), "session");
    client.slice = must(broker_.open_slice(client.session, device_of(index), {}, ""), "slice").id;
    index_of_[client.session] = index;
  }
  void ask(SessionIndex index, Bytes wanted, Bytes least, TimePoint now) override {
    Client& client = clients_[index];
    client.request = requests_.next();
    asker_[client.request] = index;
    const core::Broker::Part part{client.slice, wanted, least};
    decide(now, [&] {
      broker_.grow(client.request, client.session, {&part, 1}, broker_.policy().max_wait, now);
    });
  }
  void withdraw(SessionIndex index, TimePoint now) override {
    Client& client = clients_[index];
    asker_.erase(client.request);
    decide(now, [&] { broker_.cancel(std::exchange(client.request, {}), now); });
  }
  Bytes yield(SessionIndex index, Bytes keep, TimePoint now) override;
  void close(SessionIndex index, TimePoint now) override {
    Client& client = clients_[index];
    asker_.erase(client.request);
    decide(now, [&] { broker_.session_ended(client.session, core::SessionEnd::kReleased, now); });
    index_of_.erase(client.session);
    client = {};
  }
  void tick(TimePoint now) override {
    decide(now, [&] { broker_.tick(now); });
  }
  std::optional<TimePoint> next_deadline() const override { return broker_.next_deadline(); }
  bool is_as_new() const override {
    return broker_.sessions().empty() &&
           std::ranges::all_of(broker_.devices(), [](const core::DeviceView& view) {
             return view.charges.total().is_zero() && view.free == view.policy.pool && view.waiting == 0;
           });
  }

 private:
  struct Client {
    SessionId session;
    SliceId slice;
    RequestId request;
    std::vector<std::pair<Bytes, LeaseId>> leases;
    Bytes held() const {
      Bytes sum;
      for (const auto& [size, lease] : leases) sum += size;
      return sum;
    }
  };

  std::string device_of(SessionIndex index) const {
    return "GPU-" + std::to_string(trace_.sessions[index].device);
  }
  // One event, timed to its last consequence.
  template <class Event>
  void decide(TimePoint now, Event&& event) {
    decisions_.add(timed([&] {
      event();
      do_effects(broker_, now,
                 [this](core::Effect& effect) { std::visit([this](auto& one) { take(one); }, effect); });
    }));
    broker_.take_touched();
    broker_.take_events();
  }

  void take(core::SendOffer& offer) {
    Client& client = clients_[index_of_.at(offer.session)];
    for (const core::OfferedLease& one : offer.grant.leases)
      client.leases.push_back({one.extent.size, one.lease});
    must(broker_.accept(offer.session, offer.grant.id), "accept");
  }
  void take(core::AnswerGrow& answer) {
    const auto found = asker_.find(answer.request);
    if (found == asker_.end()) return;
    Bytes granted;
    if (answer.answer) {
      for (const core::OfferedLease& one : answer.answer->leases) granted += one.extent.size;
    }
    outcomes_.push_back({found->second, granted});
    clients_[found->second].request = {};
    asker_.erase(found);
  }
  void take(core::AnswerMap&) {}
  void take(core::RingDoorbell& bell) {
    if (const auto found = index_of_.find(bell.session); found != index_of_.end())
      pressed_.push_back(found->second);
  }
  void take(core::SignalSession&) { check_failed("wait", "nobody is ended", __FILE__, __LINE__); }
  void take(core::SignalForeigner&) { check_failed("no", "there are no foreigners", __FILE__, __LINE__); }
  void take(core::RunJobs&) {}
  void take(core::HurryJob&) {}
  void take(core::ForgetSession&) {}

  const Trace& trace_;
  core::Broker broker_;
  std::vector<Client> clients_;
  std::unordered_map<SessionId, SessionIndex> index_of_;
  std::unordered_map<RequestId, SessionIndex> asker_;
  IdSource<RequestId> requests_;
};

// The fewest extents that are enough: the smallest that is by itself, else the largest and on.
std::vector<LeaseId> choose(std::vector<std::pair<Bytes, LeaseId>>& leases, Bytes asked, Bytes most) {
  std::ranges::sort(leases);
  std::vector<LeaseId> chosen;
  while (!asked.is_zero()) {
    auto one = std::ranges::find_if(leases, [&](const auto& lease) { return lease.first >= asked; });
    if (one == leases.end() || one->first > most)
      one = std::ranges::upper_bound(leases, most, {}, &std::pair<Bytes, LeaseId>::first);
    if (one == leases.end() || one->first > most) {
      if (one == leases.begin()) break;
      --one;
    }
    asked = asked.minus(one->first);
    most -= one->first;
    chosen.push_back(one->second);
    leases.erase(one);
  }
  return chosen;
}

Bytes BrokerStrategy::yield(SessionIndex index, Bytes keep, TimePoint now) {
  Client& client = clients_[index];
  const DeviceIndex device = trace_.sessions[index].device;
  const Bytes asked{broker_.figures(client.session).devices[device].pressure};
  if (asked.is_zero()) return {};
  const Bytes before = client.held();
  const std::vector<LeaseId> leases = choose(client.leases, asked, before.minus(keep));
  const Bytes given = before - client.held();
  decide(now, [&] {
    if (!leases.empty()) must(broker_.give_back(client.session, client.slice, leases, now), "give back");
    if (given < asked) broker_.spent(client.session, device, now);
  });
  return given;
}

}  // namespace

std::unique_ptr<Strategy> broker_strategy(const Trace& trace, bool lends, Duration aging) {
  return std::make_unique<BrokerStrategy>(trace, lends, aging);
}

}  // namespace gpumem::bench
