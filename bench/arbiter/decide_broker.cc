#include <benchmark/benchmark.h>

#include "bench/arbiter/decide.h"
#include "bench/arbiter/instant_driver.h"
#include "bench/arbiter/set_floor.h"
#include "bench/must.h"

namespace gpumem::bench {
namespace {

using core::Broker;
using core::TimePoint;

constexpr Bytes kExtent = mebibytes(2);
constexpr std::int64_t kEvents = 10'000;
constexpr std::int64_t kWarmUp = 1'000;

// A full device behind the broker, with one session and one slice for each tenant. Sessions ignore reclaim
// requests, so every decision is a release, its proof, the grant of the first in the order, and a newcomer.
class FullBroker {
 public:
  FullBroker(std::uint32_t tenants, std::size_t waiters)
      : pool_{kExtent.count * std::max<std::uint64_t>(2 * tenants, 1000)}, broker_(policy(tenants)) {
    broker_.tick({});
    finish();
    for (std::uint32_t uid = 0; uid < tenants; ++uid) open(uid);
    for (std::size_t i = 0; i < pool_.count / kExtent.count; ++i) ask(clients_[i % tenants]);
    require(holdings_.size() == pool_.count / kExtent.count, "the pool is given out");
    broker_.outbox().take_events();
    for (std::size_t i = 0; i < waiters; ++i) ask(clients_[i % tenants]);
    require(holdings_.size() == pool_.count / kExtent.count, "the others wait");
  }

  Clock::duration decide() {
    const std::size_t place = shuffle_.below(holdings_.size());
    const Holding old = holdings_[place];
    holdings_[place] = holdings_.back();
    holdings_.pop_back();
    const Client& newcomer = clients_[shuffle_.below(clients_.size())];
    const std::size_t before = holdings_.size();
    const auto took = timed([&] {
      must(broker_.give_back(old.session, {old.slice, {old.lease}}, now_), "give back");
      finish();
      ask(newcomer);
    });
    require(holdings_.size() == before + 1, "what is released is granted once");
    broker_.outbox().take_touched();
    broker_.outbox().take_events();
    now_ += std::chrono::microseconds(1);
    return took;
  }

 private:
  struct Client {
    SessionId session;
    SliceId slice;
  };
  struct Holding {
    SessionId session;
    SliceId slice;
    LeaseId lease;
  };

  core::Policy policy(std::uint32_t tenants) const {
    core::Policy policy;
    policy.devices = {{"GPU-0", "Full", pool_, pool_, kExtent}};
    policy.others = {{{.guarantee = {}, .limit = pool_}}};
    policy.max_sessions = tenants;
    policy.max_requests_per_session = 1'000'000;
    return policy;
  }
  void open(std::uint32_t uid) {
    const core::Peer peer{.pid = 1000 + uid, .uid = uid, .gids = {uid}, .command = "train"};
    Client client{must(broker_.open_session(peer, "", now_), "session"), {}};
    client.slice = must(broker_.open_slice(client.session, {"GPU-0", {}, ""}), "slice").id;
    clients_.push_back(client);
  }
  void ask(const Client& client) {
    broker_.grow(ids_.next(), client.session, {{{client.slice, kExtent, kExtent}}, std::chrono::hours(1)},
                 now_);
    finish();
  }
  void finish() {
    do_effects(broker_, now_, [this](core::Effect& effect) {
      const auto* offer = std::get_if<core::SendOffer>(&effect);
      if (offer == nullptr) return;
      for (const core::OfferedLease& one : offer->grant.leases)
        holdings_.push_back({offer->session, one.slice, one.lease});
      must(broker_.accept(offer->session, offer->grant.id), "accept");
    });
  }

  Bytes pool_;
  TimePoint now_{};
  Broker broker_;
  std::vector<Client> clients_;
  std::vector<Holding> holdings_;
  IdSource<RequestId> ids_;
  Shuffle shuffle_;
};

void decide_broker(benchmark::State& state) {
  const auto waiters = static_cast<std::size_t>(state.range(1));
  FullBroker broker(static_cast<std::uint32_t>(state.range(0)), waiters);
  for (std::int64_t i = 0; i < kWarmUp; ++i) broker.decide();
  Samples samples;
  for (auto _ : state) {
    const auto took = broker.decide();
    samples.add(took);
    state.SetIterationTime(seconds(took));
  }
  const double floor = SetFloor(waiters).take(static_cast<std::size_t>(kEvents)).median_us();
  state.counters["median_us"] = samples.median_us();
  state.counters["p99_us"] = samples.quantile_us(0.99);
  state.counters["floor_us"] = floor;
  state.counters["per_floor"] = samples.median_us() / floor;
}

}  // namespace

void register_decide_broker() {
  benchmark::RegisterBenchmark("decide_broker", decide_broker)
      ->ArgNames({"tenants", "waiters"})
      ->ArgsProduct({{10, 1000}, {10, 16'384}})
      ->Iterations(kEvents)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace gpumem::bench
