#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "daemon/core/arbiter/arbiter.h"
#include "daemon/core/reclaim/reclaim_plan.h"
#include "tests/model/books.h"

// With requests of one extent, bursts end as the weighted max-min split, within one extent, inside each
// priority.

namespace gpumem::core::model {
namespace {

constexpr Number kExtent = 4;
constexpr Bytes kOne{static_cast<std::uint64_t>(kExtent)};

struct Shape {
  std::size_t groups = 0;
  bool limits = true;
  bool finite = true;  ///< some ask for little
  bool lends = false;
  bool priorities = true;
};

/// Tenants that ask for one extent after another on one device. The books are kept along.
class Market {
 public:
  Market(std::uint64_t seed, const Shape& shape)
      : random_(seed),
        shape_(shape),
        pool_(static_cast<Number>(20 + below(60)) * kExtent),
        books_({{pool_, kExtent, 0, shape.lends}}),
        ledger_({bytes(pool_)}),
        arbiter_(ledger_, {kOne}, std::chrono::hours(1)) {
    ledger_.set_lending(0, shape.lends);
    tenants_.emplace_back();
    demand_.push_back(0);
    grow_tree();
  }

  /// Everybody has asked before the first is granted.
  void fill() {
    ledger_.set_missing(0, ledger_.pool(0));
    for (const NodeIndex leaf : leaves_) ask_for_all(leaf);
    ledger_.set_missing(0, {});
    admit();
  }

  /// Somebody wants another amount than before: more is asked for, or all waiting withdrawn and some given
  /// back.
  void change_demand() {
    const NodeIndex leaf = leaves_[below(leaves_.size())];
    demand_[leaf] = static_cast<Number>(below(static_cast<std::uint64_t>(pool_ / kExtent))) * kExtent;
    for (const RequestId id : std::exchange(waiting_[leaf], {})) arbiter_.remove(id);
    release(leaf, std::max<Number>(0, used(leaf) - demand_[leaf]));
    ask_for_all(leaf);
    admit();
  }

  /// Who is asked to give back does so, until nobody is asked any more; false if that never ends.
  bool reclaim() {
    const auto most = [this](TenantId tenant, ReclaimCause) { return ledger_.used(tenant, 0); };
    const auto nothing = [](TenantId) { return Bytes{}; };
    const ReclaimFacts facts{kOne, nothing, most, {}};
    for (int rounds = 0; rounds < 1000; ++rounds) {
      const ReclaimPlan plan = plan_reclaim(ledger_, arbiter_, 0, facts);
      if (plan.targets.empty()) return true;
      for (const auto& [tenant, ask] : plan.targets) give_back(tenant, ask);
      admit();
    }
    return false;
  }

  /// Nobody wants more who has less than a sibling, by priority and share, than `slack` extents allow.
  void expect_max_min(Number slack) const {
    const Accounts accounts(books_, 0);
    for (NodeIndex node = 1; node < books_.nodes.size(); ++node) {
      if (wants(accounts, node)) expect_fair(accounts, node, slack);
    }
  }

  /// The same for the one who is next alone, at every group above it.
  void expect_fair_to_the_next(Number slack) const {
    const auto next = arbiter_.next(0);
    if (!next) return;
    const Accounts accounts(books_, 0);
    for (const NodeIndex node : books_.way_up(node_of(arbiter_.find(*next)->tenant))) {
      if (node != Books::kTop) expect_fair(accounts, node, slack);
    }
  }

  /// Flat trees, nothing lent: against the level to which every priority's bursts are filled.
  void expect_filled_to_one_level() const {
    Number left = pool_;
    for (const NodeIndex leaf : leaves_) left -= guarantee(leaf);
    for (std::uint32_t priority = kMaxPriority + 1; priority-- > 0;) {
      const double level = level_of(priority, left);
      for (const NodeIndex leaf : leaves_) {
        if (quota(leaf).priority != priority) continue;
        const Number burst = Accounts(books_, 0).of(leaf).burst;
        EXPECT_LE(std::abs(burst - filled(leaf, level)), kExtent) << "tenant " << leaf;
        left -= burst;
      }
    }
    EXPECT_GE(left, 0);
  }

  void expect_no_claim_waits() const { EXPECT_TRUE(arbiter_.claims(0).empty()); }

 private:
  static Bytes bytes(Number n) { return {static_cast<std::uint64_t>(n)}; }
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  const Quota& quota(NodeIndex node) const { return books_.nodes[node].quotas[0]; }
  Number guarantee(NodeIndex node) const { return number(quota(node).guarantee); }
  Number used(NodeIndex leaf) const { return books_.nodes[leaf].leases[0]; }

  // Groups have no guarantees of their own, and limits that have room for those of their members.
  void grow_tree() {
    std::vector<NodeIndex> groups{Books::kTop};
    for (std::size_t i = 0; i < shape_.groups; ++i) {
      groups.push_back(add({{}, bytes(shape_.limits && one_in(2) ? pool_ / 2 : pool_), weight(), priority()},
                           groups[below(groups.size())]));
    }
    const std::size_t count = 2 + below(12);
    const auto most = static_cast<std::uint64_t>(pool_ / kExtent) / count / 2;
    for (std::size_t i = 0; i < count; ++i) {
      const Number promise = one_in(2) ? 0 : static_cast<Number>(below(most + 1)) * kExtent;
      const Number limit =
          shape_.limits && one_in(3) ? promise + static_cast<Number>(below(10)) * kExtent : pool_;
      leaves_.push_back(
          add({bytes(promise), bytes(limit), weight(), priority()}, groups[below(groups.size())]));
      const bool little = shape_.finite && one_in(3);
      demand_.back() = little ? static_cast<Number>(below(15)) * kExtent : pool_ + kExtent;
    }
    waiting_.resize(books_.nodes.size());
  }
  NodeIndex add(const Quota& quota, NodeIndex parent) {
    tenants_.push_back(ledger_.add_tenant({quota}, tenants_[parent]));
    demand_.push_back(0);
    return books_.add({quota}, parent);
  }
  std::uint32_t weight() {
    return one_in(2) ? kDefaultWeight : 1 + static_cast<std::uint32_t>(below(kMaxWeight));
  }
  std::uint32_t priority() {
    return shape_.priorities ? kDefaultPriority + static_cast<std::uint32_t>(below(3)) : kDefaultPriority;
  }

  void ask_for_all(NodeIndex leaf) {
    const Number open = demand_[leaf] - used(leaf) - static_cast<Number>(waiting_[leaf].size()) * kExtent;
    for (Number asked = 0; asked < open; asked += kExtent) {
      waiting_[leaf].push_back(request_ids_.next());
      arbiter_.add({waiting_[leaf].back(),
                    SessionId{1},
                    tenants_[leaf],
                    {{SliceId{leaf}, 0, kOne, kOne}},
                    {},
                    {},
                    TimePoint::max()});
    }
  }

  void admit() {
    for (const Granted& one : arbiter_.admit()) {
      const NodeIndex leaf = node_of(one.request.tenant);
      books_.nodes[leaf].leases[0] += number(one.bytes[0]);
      std::erase(waiting_[leaf], one.request.id);
    }
  }
  NodeIndex node_of(TenantId tenant) const {
    return static_cast<NodeIndex>(std::ranges::find(tenants_, tenant) - tenants_.begin());
  }

  void release(NodeIndex leaf, Number amount) {
    books_.nodes[leaf].leases[0] -= amount;
    ledger_.release(tenants_[leaf], 0, bytes(amount), Charge::kOffered);
  }

  void give_back(TenantId tenant, const ReclaimTarget& ask) {
    const NodeIndex leaf = node_of(tenant);
    EXPECT_LE(ask.pool(), ledger_.burst(tenant, 0)) << "more is asked of a tenant than its burst";
    release(leaf, std::min(used(leaf), number(*ask.pool().rounded_up(kOne))));
  }

  // Whether somebody at the node or below waits whom no limit up to the node holds back.
  bool wants(const Accounts& accounts, NodeIndex node) const {
    const auto may = [&](NodeIndex leaf) {
      if (waiting_[leaf].empty() || accounts.room(leaf) < kExtent) return false;
      const auto way = books_.way_up(leaf);
      if (std::ranges::find(way, node) == way.end()) return false;  // not below it
      const auto end = std::next(std::ranges::find(way, node));
      return std::none_of(way.begin(), end,
                          [&](NodeIndex at) { return accounts.over_limit_at(at, leaf, kExtent); });
    };
    return std::ranges::any_of(leaves_, may);
  }

  void expect_fair(const Accounts& accounts, NodeIndex a, Number slack) const {
    for (const NodeIndex b : books_.children(books_.nodes[a].parent)) {
      const Number beyond = accounts.of(b).burst - (slack - 1) * kExtent;
      if (a == b || beyond <= 0 || quota(b).priority > quota(a).priority) continue;
      const std::string names = std::to_string(b) + " has too much beside " + std::to_string(a);
      EXPECT_EQ(quota(b).priority, quota(a).priority) << names;
      EXPECT_LE(static_cast<double>(beyond) / quota(b).weight,
                static_cast<double>(accounts.of(a).burst + kExtent) / quota(a).weight + 1e-9)
          << names;
    }
  }

  Number filled(NodeIndex leaf, double level) const {
    const Number cap =
        std::max<Number>(0, std::min(number(quota(leaf).limit), demand_[leaf]) - guarantee(leaf));
    const double share = level * quota(leaf).weight / kExtent;
    return share >= static_cast<double>(pool_) ? cap : std::min(cap, static_cast<Number>(share) * kExtent);
  }

  // The highest at which the bursts of all of this priority still go into `left`.
  double level_of(std::uint32_t priority, Number left) const {
    const auto sum = [&](double level) {
      Number all = 0;
      for (const NodeIndex leaf : leaves_) all += quota(leaf).priority == priority ? filled(leaf, level) : 0;
      return all;
    };
    double low = 0;
    double high = 2 * static_cast<double>(pool_);
    for (int i = 0; i < 100; ++i) {
      const double middle = (low + high) / 2;
      (sum(middle) <= left ? low : high) = middle;
    }
    return low;
  }

  std::mt19937_64 random_;
  Shape shape_;
  Number pool_;
  Books books_;
  Ledger ledger_;
  Arbiter arbiter_;
  IdSource<RequestId> request_ids_;
  std::vector<TenantId> tenants_;  ///< by node
  std::vector<Number> demand_;     ///< likewise
  std::vector<std::vector<RequestId>> waiting_;
  std::vector<NodeIndex> leaves_;
};

constexpr std::uint64_t kMarkets = 300;

void fill_many(const Shape& shape) {
  for (std::uint64_t seed = 1; seed <= kMarkets && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Market market(seed, shape);
    market.fill();
    market.expect_max_min(1);
    if (shape.groups == 0 && !shape.lends) market.expect_filled_to_one_level();
  }
}

TEST(MaxMin, EqualsFillingEveryTenantToOneLevel) {
  fill_many({.limits = false, .finite = false, .priorities = false});
}

TEST(MaxMin, HoldsWithLimitsAndFiniteDemandsInEveryPriority) { fill_many({}); }

TEST(MaxMin, HoldsAtEveryGroup) { fill_many({.groups = 4}); }

TEST(MaxMin, HoldsWhereGuaranteesAreLent) { fill_many({.groups = 3, .lends = true}); }

void change_many(Shape shape, const std::function<void(const Market&)>& expect) {
  for (std::uint64_t seed = 1; seed <= 100 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    shape.lends = seed % 2 == 0;
    shape.limits = seed % 3 != 0;
    Market market(seed, shape);
    market.fill();
    for (int changes = 0; changes < 30 && !testing::Test::HasFailure(); ++changes) {
      market.change_demand();
      ASSERT_TRUE(market.reclaim()) << "they give and get in turns for ever";
      market.expect_no_claim_waits();
      expect(market);
    }
  }
}

// Extents go whole, so borrowers may keep up to one more than the one who waits would have.
TEST(MaxMin, ComesBackAfterEveryChangeIfBorrowersGiveBackWhatTheyAreAsked) {
  change_many({}, [](const Market& market) { market.expect_max_min(2); });
}

TEST(MaxMin, ComesBackInGroupsForTheOneWhoIsNext) {
  change_many({.groups = 4}, [](const Market& market) { market.expect_fair_to_the_next(2); });
}

}  // namespace
}  // namespace gpumem::core::model
