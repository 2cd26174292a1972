#include <random>

#include "tests/unit/core/machine.h"

// Regions whose charge is shared, in random sequences: whoever maps, unmaps, dies or gets other limits, parts
// add up to the memory, and no share takes anybody beyond a limit.

namespace gpumem::core {
namespace {

using std::chrono::seconds;

// Four tenants, of which two belong to a group; the limits are close.
Policy tight_policy(Bytes less = {}) {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(96))};
  policy.devices[0].reclaim.lend_guarantees = true;
  policy.tenants = {
      parent("lab", {{mebibytes(8), mebibytes(40) - less}}), user("user1", 1, {{{}, mebibytes(30)}}, "lab"),
      user("user2", 2, {{mebibytes(8), mebibytes(30) - less}}, "lab"),
      user("user3", 3, {{mebibytes(16), mebibytes(24)}}), user("user4", 4, {{{}, mebibytes(12) - less}})};
  return policy;
}

class RegionSharesAtRandom : public testing::TestWithParam<std::uint32_t> {
 protected:
  struct Client {
    SessionId session;
    std::uint32_t uid;
    SliceId slice;
    std::vector<Grant> grants;
    std::vector<ImportId> imports;
  };

  std::uint32_t below(std::size_t bound) { return static_cast<std::uint32_t>(random() % bound); }
  Client& some_client() {
    if (clients.empty() || (clients.size() < 10 && below(6) == 0)) {
      const std::uint32_t uid = 1 + below(4);
      const SessionId session = machine.connect(uid);
      clients.push_back({session, uid, machine.slice(session), {}, {}});
    }
    return clients[below(clients.size())];
  }
  void grow(Client& client) {
    const RequestId id = machine.grow(client.session, client.slice, mebibytes(2 * (1 + below(5))));
    if (!machine.is_granted(id)) return;
    client.grants.push_back(machine.answers.at(id).value());
    ASSERT_TRUE(machine.broker.accept(client.session, client.grants.back().id));
  }
  void publish(Client& client) {
    if (client.grants.empty()) return grow(client);
    RegionTerms terms;
    terms.name = std::string(1, static_cast<char>('a' + below(2)));
    terms.sharing = Sharing::kPublic;
    terms.charging = below(5) == 0 ? Charging::kPublisher : Charging::kShared;
    terms.keep = below(4) == 0;
    const auto leases = Machine::leases_of(client.grants[below(client.grants.size())]);
    const auto published = machine.broker.publish(client.session, client.slice, leases, terms, machine.now);
    machine.collect();
    EXPECT_TRUE(published || published.error().code == Code::kFailedPrecondition);
  }
  void map(Client& client) {
    const std::string owner = "user" + std::to_string(1 + below(4));
    const std::string name(1, static_cast<char>('a' + below(2)));
    const std::map<std::string, Bytes> before = debts();
    const auto mapped = machine.broker.map_region(client.session, owner, name, Regions::kNewest, machine.now);
    machine.collect();
    if (mapped) {
      client.imports.push_back(mapped->imported.id);
      ++maps;
    } else if (mapped.error().code == Code::kResourceExhausted) {
      ++refused;
    }
    for (const auto& [tenant, debt] : debts()) EXPECT_LE(debt, before.at(tenant)) << tenant << " by a map";
  }
  void unmap(Client& client) {
    if (client.imports.empty()) return;
    const auto at = client.imports.begin() + below(client.imports.size());
    ASSERT_TRUE(machine.broker.release_import(client.session, *at, machine.now));
    client.imports.erase(at);
    machine.collect();
  }
  void give_back(Client& client) {
    if (client.grants.empty()) return;
    const auto at = client.grants.begin() + below(client.grants.size());
    const Grant given = *at;
    client.grants.erase(at);
    ASSERT_TRUE(machine.give_back(client.session, client.slice, given));
  }
  void die() {
    if (clients.empty()) return;
    const auto at = clients.begin() + below(clients.size());
    const SessionId session = at->session;
    if (below(3) == 0) machine.lose_lane(session);
    clients.erase(at);
    machine.die(session);
  }
  void reload() {
    const Bytes before = std::exchange(less, below(2) == 0 ? Bytes{} : mebibytes(6));
    const std::map<std::string, Bytes> owed = debts();
    ASSERT_TRUE(machine.broker.apply(tight_policy(less), machine.now));
    machine.collect();
    if (before != less) return;
    for (const auto& [tenant, debt] : debts())
      EXPECT_LE(debt, owed.at(tenant)) << tenant << " by a reload that changes nothing";
  }

  std::map<std::string, Bytes> debts() const {
    std::map<std::string, Bytes> all;
    for (const TenantView& one : machine.broker.tenants()) all[one.name] = one.debt;
    return all;
  }
  void check() {
    Bytes shares, relief;
    for (const TenantView& one : machine.broker.tenants()) {
      if (one.name == "lab") continue;
      shares += one.shares;
      relief += one.relief;
      EXPECT_LE(one.relief, one.charges.total()) << one.name;
      // Beyond it by its own memory alone.
      if (!one.shares.is_zero()) {
        EXPECT_LE((one.charges.total() - one.relief + one.shares).minus(one.quota.limit),
                  one.charges.total() - one.relief)
            << one.name;
      }
    }
    EXPECT_EQ(shares, relief);
    if (!shares.is_zero()) ++times_shared;
    for (const RegionView& region : machine.broker.regions({"", true}, "", machine.now).regions) {
      Bytes sum, largest;
      for (const auto& charged : region.charged) sum += charged.bytes;
      const Bytes holders = sum;
      for (const auto& share : region.shares) {
        sum += share.bytes;
        largest = std::max(largest, share.bytes);
      }
      EXPECT_EQ(sum.count % kPiece.count, 0u) << "all parts together are whole extents";
      EXPECT_LE(largest, holders);
      EXPECT_TRUE(region.region.charging == Charging::kShared || region.shares.empty());
    }
  }

  Bytes less;  ///< of the policy in force
  int times_shared = 0;
  int maps = 0;
  int refused = 0;
  std::vector<Client> clients;
  Machine machine{tight_policy()};
  std::mt19937 random{GetParam()};
};

TEST_P(RegionSharesAtRandom, AddUpToTheMemoryAndPassNoLimit) {
  for (int step = 0; step < 1500 && !HasFailure(); ++step) {
    Client& client = some_client();
    switch (below(12)) {
      case 0:
      case 1: grow(client); break;
      case 2:
      case 3: publish(client); break;
      case 4:
      case 5:
      case 6:
      case 7: map(client); break;
      case 8:
      case 9: unmap(client); break;
      case 10: below(2) == 0 ? die() : give_back(client); break;
      default: below(4) == 0 ? reload() : machine.pass_in_steps(seconds(below(5)));
    }
    check();
  }
  EXPECT_GT(times_shared, 100);
  EXPECT_GT(maps, 20);
  const auto shares_of_all = [&] {
    std::map<std::string, std::pair<Bytes, Bytes>> all;
    for (const TenantView& one : machine.broker.tenants()) all[one.name] = {one.shares, one.relief};
    return all;
  };
  ASSERT_TRUE(machine.broker.apply(tight_policy(), machine.now));
  machine.collect();
  while (!clients.empty()) die();
  for (const auto& [tenant, parts] : shares_of_all())
    EXPECT_EQ(parts.first + parts.second, Bytes{}) << tenant;
}

INSTANTIATE_TEST_SUITE_P(Seeds, RegionSharesAtRandom, testing::Range(1U, 21U));

}  // namespace
}  // namespace gpumem::core
