// Regions of three tenants whose processes come, publish, map, adopt, unmap, remove and die at random,
// against a naive reference. GPUMEM_MODEL_STEPS and GPUMEM_MODEL_SEED repeat a run.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "tests/model/region_reference.h"
#include "tests/unit/core/machine.h"

namespace gpumem::core::model {
namespace {

using std::chrono::seconds;
using May = RegionReference::May;

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

// Room for all, so that nobody is asked for anything: what ends here ends by the rules of regions.
Policy roomy_policy() {
  Policy policy;
  const std::vector<Quota> all{{{}, mebibytes(256)}, {{}, mebibytes(256)}};
  policy.devices = {device("GPU-0", mebibytes(256)), device("GPU-1", mebibytes(256))};
  policy.tenants = {user("ann", 1, all), user("bob", 2, all), user("cat", 3, all)};
  return policy;
}

class RegionWorld {
 public:
  explicit RegionWorld(std::uint64_t seed) : random_(seed) {}

  void step() {
    switch (below(12)) {
      case 0: return connect();
      case 1:
      case 2:
      case 3: return publish();
      case 4:
      case 5:
      case 6: return map();
      case 7:
      case 8: return unmap();
      case 9: return give_back();
      case 10: return one_in(2) ? end() : remove();
      default: return pass();
    }
  }
  /// Everything ends, and nothing stays.
  void finish() {
    while (!clients_.empty()) end();
    for (const char* owner : kTenants)
      for (const char* name : kNames)
        while (machine_.broker.remove_region_of(owner, {name}, machine_.now)) {
        }
    machine_.collect();
    EXPECT_TRUE(machine_.is_as_new());
    EXPECT_TRUE(machine_.broker.sessions().empty());
  }
  void check() {
    std::map<RegionId, RegionView> found;
    RegionId after;
    do {
      RegionPage page = machine_.broker.regions({"", true}, "", machine_.now, after);
      for (RegionView& view : page.regions) found.emplace(view.region.id, std::move(view));
      after = page.next;
    } while (after);
    EXPECT_EQ(found.size(), reference_.regions().size());
    for (const auto& [id, region] : reference_.regions()) {
      ASSERT_TRUE(found.contains(id)) << "version " << id.value << " of " << region.name;
      const RegionView& view = found.at(id);
      EXPECT_EQ(view.owner, region.owner) << id.value;
      EXPECT_EQ(view.region.kept, region.kept) << id.value;
      EXPECT_EQ(view.region.left, region.left) << id.value;
    }
    check_charges();
  }

  struct Seen {
    std::uint64_t mapped = 0, adopted = 0, kept = 0, passed_on = 0, sealed = 0;
  };
  const Seen& seen() const { return seen_; }

 private:
  static constexpr const char* kNames[] = {"a", "b", "c"};
  static constexpr const char* kDevices[] = {"GPU-0", "GPU-1"};
  static constexpr const char* kTenants[] = {"ann", "bob", "cat"};

  struct Mapping {
    ImportId id;
    std::vector<LeaseId> leases;
    std::vector<ExtentId> extents;
  };
  struct Client {
    SessionId session;
    DeviceIndex device;  ///< of its slice
    SliceId slice;
    std::vector<Grant> grants;
    std::vector<Mapping> mappings;
  };

  std::size_t below(std::size_t limit) { return random_() % limit; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  std::string some_tenant() { return one_in(3) ? kTenants[1 + below(2)] : "ann"; }
  std::string some_name() { return kNames[below(std::size(kNames))]; }
  Client* some_client() { return clients_.empty() ? nullptr : &clients_[below(clients_.size())]; }

  void connect() {
    constexpr std::size_t kMost = 6;
    if (clients_.size() == kMost) return end();
    const std::uint32_t user = one_in(3) ? 2 + static_cast<std::uint32_t>(below(2)) : 1;
    const SessionId session = machine_.connect(user);
    reference_.connect(session, kTenants[user - 1]);
    const DeviceIndex device = below(2);
    clients_.push_back({session, device, machine_.slice(session, {}, kDevices[device]), {}, {}});
  }

  void publish() {
    constexpr std::size_t kMostMemory = 50;
    Client* const client = some_client();
    if (client == nullptr) return connect();
    if (reference_.memory().size() > kMostMemory) return remove();
    if (client->grants.empty() || one_in(2)) {
      const Grant grant = machine_.get(client->session, client->slice, mebibytes(2 * (1 + below(2))));
      for (const OfferedLease& one : grant.leases)
        reference_.lend(one.lease, client->session, one.extent.size);
      client->grants.push_back(grant);
    }
    std::vector<LeaseId> leases = Machine::leases_of(client->grants[below(client->grants.size())]);
    if (one_in(3)) {  // of two grants
      const auto more = Machine::leases_of(client->grants.back());
      if (more != leases) leases.insert(leases.end(), more.begin(), more.end());
    }
    publish(*client, leases);
  }
  Publish some_terms() {
    Publish terms;
    terms.name = some_name();
    terms.sharing = one_in(3) ? Sharing::kPrivate : Sharing::kPublic;
    terms.keep = one_in(2);
    if (terms.keep && one_in(3)) terms.linger = seconds(1 + below(20));
    if (one_in(5)) terms.life = seconds(1 + below(30));
    terms.sealed = one_in(2);
    return terms;
  }
  RegionReference::Region region_of(const Publish& terms, const std::string& owner,
                                    std::vector<LeaseId> memory, DeviceIndex device) const {
    return {owner,
            terms.name,
            std::move(memory),
            terms.sharing == Sharing::kPublic,
            terms.expires(machine_.now),
            terms.keep,
            terms.lingers(),
            TimePoint::max(),
            terms.sealed,
            device};
  }
  void publish(const Client& client, const std::vector<LeaseId>& leases) {
    const Publish terms = some_terms();
    const bool may = reference_.may_seal(leases, terms.sealed);
    const auto id =
        machine_.broker.publish(client.session, of_leases(terms, client.slice, leases), machine_.now);
    machine_.collect();
    ASSERT_EQ(id.has_value(), may) << (id ? "published" : id.error().message);
    if (!id) return;
    reference_.publish(*id, region_of(terms, reference_.tenant_of(client.session), leases, client.device));
    if (terms.sealed) ++seen_.sealed;
  }

  void map() {
    Client* const client = some_client();
    if (client == nullptr) return connect();
    const std::string owner = some_tenant(), name = some_name();
    const bool adopts = one_in(4);
    std::optional<DeviceIndex> device;
    if (one_in(2)) device = below(2);
    const RegionId expected = reference_.find(client->session, owner, name, device);
    const bool own = owner == reference_.tenant_of(client->session);
    const bool there = expected != RegionId{} && (own || !adopts);
    const May may = !there   ? May::kNot
                    : adopts ? reference_.may_adopt(client->session, expected)
                             : May::kSurely;
    auto mapped = machine_.broker.map_region(client->session,
                                             {.owner = owner,
                                              .name = name,
                                              .how = adopts ? MapAs::kOwner : MapAs::kReader,
                                              .device = device ? kDevices[*device] : ""},
                                             machine_.now);
    machine_.collect();
    if (may != May::kPerhaps) {
      ASSERT_EQ(mapped.has_value(), may == May::kSurely)
          << owner << "'s " << name << (adopts ? " is adopted: " : ": ")
          << (mapped ? "mapped" : mapped.error().message);
    }
    if (!mapped) return;
    ASSERT_EQ(mapped->version, expected);
    note_mapped(*client, *mapped);
    if (adopts) reference_.adopt(expected);
    ++(adopts ? seen_.adopted : seen_.mapped);
  }
  void note_mapped(Client& client, const MappedRegion& mapped) {
    Mapping mapping{mapped.imported.id, {}, {}};
    for (const auto& [lease, extent] : mapped.imported.leases) {
      mapping.leases.push_back(lease);
      mapping.extents.push_back(extent.id);
      machine_.driver.hold(extent.id);
      machine_.held[client.session].push_back(extent.id);
    }
    client.mappings.push_back(std::move(mapping));
    reference_.map(client.session, mapped.version, machine_.now);
  }

  void unmap() {
    Client* const client = some_client();
    if (client == nullptr || client->mappings.empty()) return;
    const auto at = client->mappings.begin() + static_cast<std::ptrdiff_t>(below(client->mappings.size()));
    const Mapping mapping = *at;
    client->mappings.erase(at);
    stop_using(*client, mapping.extents);
    ASSERT_TRUE(machine_.broker.release_import(client->session, {mapping.id}, machine_.now));
    machine_.collect();
    reference_.let_go(client->session, mapping.leases, machine_.now);
  }

  void give_back() {
    Client* const client = some_client();
    if (client == nullptr || client->grants.empty()) return;
    const auto at = client->grants.begin() + static_cast<std::ptrdiff_t>(below(client->grants.size()));
    const Grant grant = *at;
    client->grants.erase(at);
    std::vector<ExtentId> extents;
    for (const OfferedLease& one : grant.leases) extents.push_back(one.extent.id);
    stop_using(*client, extents);
    ASSERT_TRUE(machine_.keep_but_give_back(client->session, client->slice, grant));
    reference_.let_go(client->session, Machine::leases_of(grant), machine_.now);
  }
  // Once each: it may have mapped them besides.
  void stop_using(const Client& client, const std::vector<ExtentId>& extents) {
    std::vector<ExtentId>& held = machine_.held[client.session];
    for (const ExtentId extent : extents) {
      held.erase(std::ranges::find(held, extent));
      machine_.driver.let_go(extent);
    }
  }

  void end() {
    if (clients_.empty()) return;
    const auto at = clients_.begin() + static_cast<std::ptrdiff_t>(below(clients_.size()));
    const SessionId session = at->session;
    clients_.erase(at);
    if (one_in(3)) machine_.say_goodbye(session);
    machine_.die(session);
    reference_.end(session, machine_.now);
  }

  void remove() {
    const std::string owner = some_tenant(), name = some_name();
    RegionId newest{};
    for (const auto& [id, region] : reference_.regions())
      if (region.owner == owner && region.name == name) newest = std::max(newest, id);
    const auto removed = machine_.broker.remove_region_of(owner, {name}, machine_.now);
    machine_.collect();
    ASSERT_EQ(removed.has_value(), newest != RegionId{});
    if (removed) reference_.remove(newest, machine_.now);
  }

  void pass() {
    machine_.pass_in_steps(seconds(below(10)));
    reference_.pass_to(machine_.now);
  }

  void check_charges() {
    for (const char* tenant : kTenants) {
      EXPECT_EQ(machine_.charged(tenant, 0) + machine_.charged(tenant, 1), reference_.charged(tenant))
          << tenant;
      Bytes kept;
      for (const SessionView& session : machine_.broker.sessions()) {
        if (!session.detached || session.tenant != tenant) continue;
        for (const SharedView& shared : session.shared) kept += shared.charged;
      }
      EXPECT_EQ(kept, reference_.kept(tenant)) << tenant;
      if (!kept.is_zero()) ++seen_.kept;
    }
    Bytes free, pool;
    for (const DeviceView& view : machine_.broker.devices()) {
      free += view.free;
      pool += view.policy.pool;
    }
    for (const char* tenant : kTenants) pool -= reference_.charged(tenant);
    EXPECT_EQ(free, pool);
    for (const auto& [lease, memory] : reference_.memory())
      for (const auto& [session, times] : memory.has)
        if (reference_.tenant_of(session) != memory.tenant) ++seen_.passed_on;
  }

  std::mt19937_64 random_;
  Machine machine_{roomy_policy()};
  RegionReference reference_;
  std::vector<Client> clients_;
  Seen seen_;
};

TEST(RegionModel, AgreesWithTheReferenceAfterEveryRandomEvent) {
  constexpr std::uint64_t kStepsOfAWorld = 400;
  std::uint64_t seed = setting("GPUMEM_MODEL_SEED", 20'261'124);
  const std::uint64_t steps = setting("GPUMEM_MODEL_STEPS", 20'000);
  RegionWorld::Seen seen;
  for (std::uint64_t done = 0; done < steps && !testing::Test::HasFailure(); ++seed) {
    RegionWorld world(seed);
    std::uint64_t step = 0;
    for (; step < kStepsOfAWorld && !testing::Test::HasFailure(); ++step, ++done) {
      world.step();
      world.check();
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "at step " << step << ", GPUMEM_MODEL_SEED=" << seed;
    world.finish();
    ASSERT_FALSE(testing::Test::HasFailure()) << "at the end, GPUMEM_MODEL_SEED=" << seed;
    seen.mapped += world.seen().mapped;
    seen.adopted += world.seen().adopted;
    seen.kept += world.seen().kept;
    seen.passed_on += world.seen().passed_on;
    seen.sealed += world.seen().sealed;
  }
  if (steps < 10'000) return;  // too few to have seen everything
  EXPECT_GT(seen.mapped, 0U);
  EXPECT_GT(seen.adopted, 0U);
  EXPECT_GT(seen.kept, 0U);
  EXPECT_GT(seen.passed_on, 0U);
  EXPECT_GT(seen.sealed, 0U);
}

}  // namespace
}  // namespace gpumem::core::model
