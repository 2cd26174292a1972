#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "daemon/core/arbiter/arbiter.h"

// Whoever waits is granted in the end, whatever the others do, if only what is lent is given back in time.

namespace gpumem::core::model {
namespace {

constexpr Bytes kPiece{4};
constexpr std::uint64_t kPool = 64;  // pieces
constexpr Duration kAging{100};
constexpr Duration kLongestHold{10};
constexpr int kMostAgings = 10;

Bytes pieces(std::uint64_t n) { return {n * kPiece.count}; }

/// Tenants of whom every one always asks anew as soon as it waits for little, of the highest priorities most,
/// and who give everything back after a short while; among their requests are some for as much as there
/// can be.
class Crowd {
 public:
  Crowd(std::uint64_t seed, Duration aging)
      : random_(seed), ledger_({pieces(kPool), pieces(kPool)}), arbiter_(ledger_, {kPiece, kPiece}, aging) {
    const bool lends = one_in(2);
    ledger_.set_lending(0, lends);
    ledger_.set_lending(1, lends);
    std::vector<TenantId> groups{TenantId{}};
    for (int i = 0; i < 2; ++i)
      groups.push_back(ledger_.add_tenant(both(group_quota()), groups[below(groups.size())]));
    for (int i = 0; i < 6; ++i)
      leaves_.push_back(ledger_.add_tenant(both(leaf_quota()), groups[below(groups.size())]));
  }

  /// One unit of time. The longest that anybody waits.
  Duration tick() {
    now_ += Duration(1);
    std::erase_if(held_, [&](const Held& one) { return one.until <= now_ && release(one); });
    for (const TenantId leaf : leaves_) {
      if (waiting(leaf) < 3 && !one_in(4)) ask(leaf);
    }
    arbiter_.age(now_);
    for (const Granted& one : arbiter_.admit()) hold(one);
    return asked_.empty() ? Duration{} : now_ - asked_.begin()->second.at;
  }
  std::string oldest() const {
    const auto& [id, asked] = *asked_.begin();
    return "request " + std::to_string(id.value) + " of tenant " + std::to_string(asked.leaf.value);
  }

 private:
  struct Held {
    TenantId leaf;
    DeviceIndex device;
    Bytes bytes;
    TimePoint until;
  };
  struct Asked {
    TenantId leaf;
    TimePoint at;
  };

  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  static Quotas both(Quota quota) { return {quota, quota}; }
  Quota group_quota() {
    return {{}, pieces(one_in(2) ? kPool : 40), 1 + static_cast<std::uint32_t>(below(100)), priority()};
  }
  Quota leaf_quota() {
    const std::uint64_t guarantee = one_in(2) ? 0 : 1 + below(6);
    return {pieces(guarantee), pieces(kPool), 1 + static_cast<std::uint32_t>(below(100)), priority()};
  }
  std::uint32_t priority() { return static_cast<std::uint32_t>(below(kMaxPriority + 1)); }
  std::ptrdiff_t waiting(TenantId leaf) const {
    return std::ranges::count_if(asked_, [&](const auto& one) { return one.second.leaf == leaf; });
  }

  // Of what its own guarantee has, nothing: its own small claims may go before its large requests for ever.
  Bytes most(TenantId leaf, DeviceIndex device) const {
    return ledger_.ceiling(leaf, device).minus(ledger_.quota(leaf, device).guarantee);
  }

  void ask(TenantId leaf) {
    Request request{request_ids_.next(), SessionId{1}, leaf, {}, now_, {}, TimePoint::max()};
    const DeviceIndex only = below(2);
    const bool joint = one_in(5);
    for (DeviceIndex device = 0; device < 2; ++device) {
      if (!joint && device != only) continue;
      const Bytes most_bytes = most(leaf, device);
      const Bytes bytes = one_in(10) ? most_bytes : std::min(most_bytes, pieces(1 + below(4)));
      if (!bytes.is_zero()) request.parts.push_back({SliceId{1}, device, bytes, bytes});
    }
    if (request.parts.empty()) return;
    asked_[request.id] = {leaf, now_};
    arbiter_.add(std::move(request));
  }

  void hold(const Granted& one) {
    asked_.erase(one.request.id);
    const TimePoint until = now_ + Duration(1 + below(static_cast<std::uint64_t>(kLongestHold.count())));
    for (std::size_t i = 0; i < one.bytes.size(); ++i) {
      held_.push_back({one.request.tenant, one.request.parts[i].device, one.bytes[i], until});
    }
  }

  bool release(const Held& one) {
    ledger_.release(one.leaf, one.device, one.bytes, Charge::kOffered);
    return true;
  }

  std::mt19937_64 random_;
  Ledger ledger_;
  Arbiter arbiter_;
  IdSource<RequestId> request_ids_;
  std::vector<TenantId> leaves_;
  std::map<RequestId, Asked> asked_;
  std::vector<Held> held_;
  TimePoint now_{};
};

TEST(Starvation, EveryWaiterIsGrantedInTheEndWhoeverElseComes) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Crowd crowd(seed, kAging);
    for (int ticks = 0; ticks < 3000; ++ticks) {
      ASSERT_LT(crowd.tick(), kMostAgings * kAging) << crowd.oldest() << " waits for ever, seed " << seed;
    }
  }
}

// What the test above would see if aging did nothing.
TEST(Starvation, WithoutAgingSomebodyIsOvertakenForEver) {
  Duration longest{};
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Crowd crowd(seed, std::chrono::hours(1));
    for (int ticks = 0; ticks < 3000; ++ticks) longest = std::max(longest, crowd.tick());
  }
  EXPECT_GT(longest, kMostAgings * kAging);
}

// A small part within a guarantee on one device does not carry a large one on another past everybody.
TEST(Starvation, AClaimOnOneDeviceDoesNotLeadPastAnOverdueRequestOnAnother) {
  Ledger ledger({pieces(kPool), pieces(kPool)});
  const TenantId ann = ledger.add_tenant({{{}, pieces(kPool)}, {{}, pieces(kPool)}});
  const TenantId bob = ledger.add_tenant({{pieces(4), pieces(kPool)}, {{}, pieces(kPool)}});
  Arbiter arbiter(ledger, {kPiece, kPiece}, kAging);
  TimePoint now{};
  std::uint64_t id = 0;
  const auto ask = [&](TenantId tenant, std::vector<std::uint64_t> amounts) {
    Request request{RequestId{++id}, SessionId{1}, tenant, {}, now, {}, TimePoint::max()};
    for (DeviceIndex device = 0; device < amounts.size(); ++device) {
      const Bytes bytes = pieces(amounts[device]);
      if (!bytes.is_zero()) request.parts.push_back({SliceId{1}, device, bytes, bytes});
    }
    arbiter.add(std::move(request));
    return arbiter.admit().size();
  };
  ASSERT_EQ(ask(bob, {1, 20}), 1u);
  ASSERT_EQ(ask(ann, {0, 60}), 0u);  // waits for bob's
  now += kAging;
  arbiter.age(now);
  EXPECT_EQ(ask(bob, {1, 20}), 0u);
  ledger.release(bob, 1, pieces(20), Charge::kOffered);
  const auto granted = arbiter.admit();
  ASSERT_EQ(granted.size(), 1u);
  EXPECT_EQ(granted[0].request.tenant, ann);
}

}  // namespace
}  // namespace gpumem::core::model
