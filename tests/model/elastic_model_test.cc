#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "tests/unit/core/machine.h"

// Clients and other programs at random on a device whose pool is elastic, or whole for a while, and on the
// host store. Some clients keep what they say they return. GPUMEM_MODEL_STEPS and GPUMEM_MODEL_SEED repeat a
// run.

namespace gpumem::core {
namespace {

constexpr std::uint64_t kStepsOfAWorld = 400;
constexpr Bytes kGuarantee = mebibytes(512);

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

// All of the device is lent: in a whole pool no other memory can pass for a proof.
Policy shared_device() {
  Policy policy = small_policy();
  policy.devices[0] = device("GPU-0", gibibytes(8));
  policy.devices[0].pool_mode = PoolMode::kByDisplay;
  policy.devices[0].has_display = true;
  policy.past_broker.allowance = gibibytes(8);
  policy.tenants = {user("ann", 1, {{kGuarantee, gibibytes(8)}}), user("bob", 2, {{{}, gibibytes(6)}})};
  return policy;
}

// The host store has files, which are proved free one by one, and memory that clients pin by themselves.
Policy host_store() {
  Policy policy = shared_device();
  policy.devices[0].uuid = kHostStore;
  policy.devices[0].pool_mode = PoolMode::kElastic;
  return policy;
}

enum class Kind { kDevice, kDeviceWhoseOthersFree, kHostStore };

class ElasticWorld {
 public:
  /// kDeviceWhoseOthersFree: other programs give memory back; else they only take.
  ElasticWorld(std::uint64_t seed, Kind kind)
      : machine(kind == Kind::kHostStore ? host_store() : shared_device()), random_(seed), kind_(kind) {
    for (std::uint32_t i = 0; i < 5; ++i) connect(1 + i % 2);
  }

  void step() {
    machine.jobs_run_at_once = one_in(2);
    switch (below(12)) {
      case 0: end_some_client(); break;
      case 1: change_other_programs(); break;
      case 2: is_host() ? pin_some() : observe(); break;
      case 3: is_host() ? restart() : change_display(); break;
      case 4: let_go_of_kept(); break;
      case 5:
      case 6: give_back_some(); break;
      case 7: machine.pass_in_steps(std::chrono::milliseconds(below(15'000))); break;
      default: grow_some(); break;
    }
    machine.collect();
    if (one_in(2)) machine.run_jobs();
    check();
  }
  /// All programs end.
  void finish() {
    machine.jobs_run_at_once = true;
    if (!is_host()) machine.broker.set_display(0, true, machine.now);
    while (!clients_.empty()) end(clients_.back());
    machine.driver.restore(0);
    stolen_ = {};
    observe();
    machine.run_jobs();
    machine.pass_in_steps(std::chrono::seconds(60));
    observe();
    for (const RequestId id : asked_) EXPECT_TRUE(machine.is_answered(id) || withdrawn_.contains(id));
    const DeviceView view = machine.broker.devices()[0];
    EXPECT_EQ(view.charges.total(), Bytes{});
    EXPECT_EQ(view.outside, Bytes{});
    EXPECT_EQ(view.free, gibibytes(7)) << "1 GiB is left to others";
    const Bytes surplus = machine.driver.handled(0) - (kGuarantee + Elastic::kStock);
    EXPECT_LT(surplus.count, Elastic::kStock.count / 8) << "less is not worth the driver calls";
    EXPECT_EQ(machine.driver.used(0), machine.driver.handled(0));
  }

  Machine machine;
  std::uint64_t pinned() const { return pinned_; }
  std::uint64_t granted() const {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(asked_, [&](RequestId id) { return machine.is_granted(id); }));
  }

 private:
  struct Client {
    SessionId session;
    SliceId slice;
    std::uint32_t uid;
    bool is_private;  ///< the slice
    std::vector<RequestId> asked{};
    std::vector<Grant> held{};
    std::vector<Grant> kept{};  ///< returned, as it says
    Bytes pinned{};
  };

  std::uint64_t below(std::uint64_t most) { return random_() % most; }
  bool one_in(std::uint64_t count) { return below(count) == 0; }
  Client& some_client() { return clients_[below(clients_.size())]; }
  bool is_host() const { return kind_ == Kind::kHostStore; }
  const std::string& device_name() const { return machine.broker.policy().devices[0].uuid; }
  void connect(std::uint32_t uid) {
    const SessionId session = machine.connect(uid);
    const bool is_private = is_host() && one_in(2);
    const auto slice = machine.broker.open_slice(session, {device_name(), {}, "", is_private});
    clients_.push_back({session, slice.value().id, uid, is_private});
  }
  void note_freed(const Grant& grant) {
    for (const OfferedLease& lease : grant.leases) freed_ += lease.extent.size;
  }
  void end(const Client& client) {
    for (const Grant& grant : client.kept) note_freed(grant);
    withdrawn_.insert(client.asked.begin(), client.asked.end());
    machine.die(client.session);
    std::erase_if(clients_, [&, id = client.session](const Client& one) { return one.session == id; });
  }
  void end_some_client() {
    const std::uint32_t uid = some_client().uid;
    end(some_client());
    connect(uid);
  }

  void grow_some() {
    Client& client = some_client();
    const Bytes bytes{(2 + below(one_in(3) ? 3000 : 300)) << 20};
    const Duration wait = one_in(2) ? Duration{} : std::chrono::milliseconds(below(20'000));
    const RequestId id = machine.grow(client.session, client.slice, bytes, wait);
    asked_.push_back(id);
    client.asked.push_back(id);
  }
  void note_grants(Client& client) {
    std::erase_if(client.asked, [&](RequestId id) {
      if (!machine.is_granted(id)) return false;
      client.held.push_back(machine.answers.at(id).value());
      EXPECT_TRUE(machine.broker.accept(client.session, client.held.back().id));
      return true;
    });
  }
  void give_back_some() {
    Client& client = some_client();
    note_grants(client);
    if (client.held.empty()) return;
    const Grant grant = client.held.back();
    client.held.pop_back();
    if (!one_in(3)) {
      ASSERT_TRUE(machine.give_back(client.session, client.slice, grant));
      return;
    }
    ASSERT_TRUE(machine.keep_but_give_back(client.session, client.slice, grant));
    if (!client.is_private) client.kept.push_back(grant);  // of a private file nothing is left
  }
  void let_go_of_kept() {
    Client& client = some_client();
    if (client.kept.empty()) return;
    note_freed(client.kept.back());
    machine.stop_using(client.session, client.kept.back());
    client.kept.pop_back();
  }
  void change_other_programs() {
    if (kind_ == Kind::kDeviceWhoseOthersFree && one_in(2)) {
      machine.driver.restore(0);
      freed_ += std::exchange(stolen_, {});
    } else {
      stolen_ += machine.driver.steal(0, Bytes{below(2000) << 20});
    }
  }
  TenantView tenant_of(const Client& client) const {
    for (const TenantView& view : machine.broker.tenants())
      if (view.name == (client.uid == 1 ? "ann" : "bob")) return view;
    return {};
  }
  Bytes used_of(const Client& client) const {
    const TenantView view = tenant_of(client);
    return view.charges.total() + view.outside;
  }
  Bytes limit_of(const Client& client) const {
    return machine.broker.policy().tenants[client.uid - 1].quotas[0].limit;
  }
  // An increase is allowed as a whole or not at all: if it is within the limit. A request that waits may get
  // what a decrease leaves, at once.
  void pin_some() {
    Client& client = some_client();
    const Bytes bytes{one_in(3) ? below(client.pinned.count + 1) : client.pinned.count + (below(1500) << 20)};
    const Bytes more = bytes.minus(client.pinned);
    const bool fits = more.is_zero() || used_of(client) + more <= limit_of(client);
    const bool probes = one_in(2);
    const auto denials = [this] {
      return std::ranges::count_if(machine.events, [](const Event& one) {
        return one.words.find("may not be pinned") != std::string::npos;
      });
    };
    const auto before = denials();
    const Bytes outside = tenant_of(client).outside;
    const auto charged =
        machine.broker.charge(client.session, {device_name(), bytes, true, probes}, machine.now);
    ASSERT_EQ(charged.has_value(), fits) << (charged ? "" : charged.error().message);
    EXPECT_EQ(tenant_of(client).outside, fits ? outside + bytes - client.pinned : outside);
    EXPECT_LE(used_of(client), limit_of(client));
    machine.collect();
    if (fits) client.pinned = bytes;
    EXPECT_EQ(denials() - before, !fits && !probes ? 1 : 0) << "a probe is no denial";
    pinned_ += fits && !more.is_zero() ? 1 : 0;
  }
  // In place: the next broker has the descriptors of everything that is lent, or was returned and is not
  // free.
  void restart() {
    std::vector<Grant> all;
    machine.run_jobs();
    for (Client& client : clients_) {
      for (const RequestId id : client.asked)
        if (!machine.is_answered(id)) machine.cancel(id);
      withdrawn_.insert(client.asked.begin(), client.asked.end());
      note_grants(client);
      client.asked.clear();
      for (const auto* some : {&client.held, &client.kept}) all.insert(all.end(), some->begin(), some->end());
    }
    machine.restart(host_store(), all);
    for (Client& client : clients_) {
      for (auto* some : {&client.held, &client.kept})
        for (Grant& grant : *some) grant = machine.before(grant);
      EXPECT_TRUE(machine.resume(client.session, {client.slice}, client.held));
    }
  }
  void change_display() { static_cast<void>(machine.broker.set_display(0, !one_in(4), machine.now)); }
  void observe() {
    if (is_host()) return;
    Observation seen;
    seen.used = *machine.driver.used(0);
    seen.broker = machine.driver.handled(0);
    machine.broker.begin_observation(0);
    machine.broker.observe(seen, machine.now);
    machine.collect();
  }

  // Memory that clients have, and that the broker has destroyed, is charged, as far as nothing was freed that
  // can pass for it: by other programs, or late by clients. What is freed proves twice as much at most.
  void check() {
    if (is_host()) check_files();
    const Bytes extents = *machine.driver.used(0) - stolen_;
    const Bytes kept = extents - machine.driver.handled(0);
    const Charges charges = machine.broker.devices()[0].charges;
    const Bytes charged = charges[Charge::kReturning] + charges[Charge::kQuarantined];
    ASSERT_LE(kept.count, (charged + freed_ + freed_).count);
    ASSERT_LE((charges.total() + machine.broker.devices()[0].missing).count, gibibytes(8).count);
    ASSERT_LE(machine.broker.devices()[0].free.count + charges.total().count, gibibytes(8).count);
  }

  // Nothing but the files themselves proves them free.
  void check_files() {
    std::map<std::string, Bytes> has;
    for (const Client& client : clients_)
      for (const auto* some : {&client.held, &client.kept})
        for (const Grant& grant : *some)
          for (const OfferedLease& lease : grant.leases)
            has[client.uid == 1 ? "ann" : "bob"] += lease.extent.size;
    for (const auto& [tenant, bytes] : has) ASSERT_LE(bytes.count, machine.charged(tenant).count) << tenant;
  }

  std::mt19937_64 random_;
  const Kind kind_;
  std::vector<Client> clients_;
  std::vector<RequestId> asked_;
  std::set<RequestId> withdrawn_;
  Bytes stolen_;  ///< other programs have it
  Bytes freed_;   ///< by other programs, and by clients after they said so, ever
  std::uint64_t pinned_ = 0;
};

void run(Kind kind) {
  std::uint64_t seed = setting("GPUMEM_MODEL_SEED", 20261128);
  const std::uint64_t steps = setting("GPUMEM_MODEL_STEPS", 8000);
  std::printf("GPUMEM_MODEL_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::uint64_t granted = 0, pinned = 0;
  for (std::uint64_t done = 0; done < steps && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("GPUMEM_MODEL_SEED=" + std::to_string(seed));
    ElasticWorld world(seed, kind);
    for (std::uint64_t i = 0; i < kStepsOfAWorld && !testing::Test::HasFailure(); ++i, ++done) world.step();
    if (!testing::Test::HasFailure()) world.finish();
    granted += world.granted();
    pinned += world.pinned();
  }
  EXPECT_GT(granted, steps / 40);
  if (kind == Kind::kHostStore) {
    EXPECT_GT(pinned, steps / 40);
  }
}

TEST(ElasticModel, ChargesWhatIsKeptAndGivesEverythingBackAtTheEnd) { run(Kind::kDevice); }

TEST(ElasticModel, EndsAtRestAlthoughOtherProgramsFreeWhatPassesForAProof) {
  run(Kind::kDeviceWhoseOthersFree);
}

TEST(ElasticModel, OfTheHostStoreChargesFilesUntilNobodyHasThemAndRefusesPinsBeyondALimit) {
  run(Kind::kHostStore);
}

}  // namespace
}  // namespace gpumem::core
