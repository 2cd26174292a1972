#include <random>

#include "tests/unit/core/memory/store_fixture.h"

// Who waits for whom: requests, the stock and proofs share one driver, in the turns of a JobQueue.

namespace gpumem::core {
namespace {

using Turns = StoreWorld;

// The pool is created in several rounds. What comes back meanwhile is proved after the last.
TEST(StoreTurns, MemoryOfAnUnfinishedPoolProvesNothing) {
  Turns at(mebibytes(64));
  at.store.adopt(mebibytes(2));
  ASSERT_EQ(at.driver.steal(0, mebibytes(2)), mebibytes(2)) << "a process holds what was lent before";
  at.driver.fails = [](const Extent& extent) { return extent.size >= mebibytes(8); };
  at.advance();
  at.finish_one();
  ASSERT_GE(at.store.missing(), mebibytes(32));
  at.store.take_back(LeaseId{1}, {{}, mebibytes(2)});
  while (!at.store.missing().is_zero() && !at.jobs.empty()) at.finish_one();
  at.driver.fails = nullptr;
  EXPECT_FALSE(at.freed.contains(LeaseId{1}));
  const RequestId request = at.want(mebibytes(4), kOneExtent);
  at.run();
  EXPECT_TRUE(at.assembled.contains(request));
  EXPECT_FALSE(at.freed.contains(LeaseId{1}));
  EXPECT_EQ(at.store.missing(), Bytes{});
  EXPECT_TRUE(at.quarantined.contains(LeaseId{1}));
}

/// Another, who asks again and again for what has to be made, and withdraws it at once; what he gets all the
/// same he gives back. What of that is not proved free is at most `most` bytes.
class Churn {
 public:
  Churn(Turns& at, Bytes most) : at_(at), most_(most) {}

  void go_on() {
    std::erase_if(returned_, [this](const auto& one) { return at_.freed.contains(one.first); });
    const Bytes size = mebibytes(514 + 2 * (++asks_ % 100));
    Bytes sum = size;
    for (const auto& [lease, bytes] : returned_) sum += bytes;
    if (sum > most_) return;
    const RequestId request = at_.want(size, kOneExtent);
    if (at_.wanted.contains(request)) return at_.withdraw(request);
    returned_.emplace(LeaseId{++last_lease_}, size);
    at_.store.take_back(LeaseId{last_lease_}, at_.assembled.at(request).front());
    at_.advance();
  }

 private:
  Turns& at_;
  Bytes most_;
  std::uint64_t asks_ = 0;
  std::uint64_t last_lease_ = 1000;
  std::map<LeaseId, Bytes> returned_;
};

TEST(StoreTurns, LargeRequestIsServedBesideRepeatedWithdrawals) {
  Turns at(gibibytes(24));
  at.run();
  Churn other(at, mebibytes(1100));
  for (int i = 0; i < 6; ++i) other.go_on();
  const RequestId large = at.want(gibibytes(24) - mebibytes(1100));
  for (int i = 0; i < 500 && at.wanted.contains(large); ++i) {
    at.finish_one();
    other.go_on();
  }
  EXPECT_TRUE(at.assembled.contains(large));
}

TEST(StoreTurns, MemoryIsProvedFreeBesideRepeatedWithdrawals) {
  Turns at(gibibytes(24));
  at.run();
  Churn other(at, gibibytes(3));
  for (int i = 0; i < 6; ++i) other.go_on();
  const RequestId mine = at.want(mebibytes(64), kOneExtent);
  while (!at.assembled.contains(mine)) at.finish_one();
  at.store.take_back(LeaseId{1}, at.assembled.at(mine).front());
  at.advance();
  for (int i = 0; i < 500 && !at.freed.contains(LeaseId{1}); ++i) {
    at.finish_one();
    other.go_on();
  }
  EXPECT_TRUE(at.freed.contains(LeaseId{1}));
}

// What anybody may do: ask in any size, withdraw, give back, keep what was given back, let it go.
class Anything {
 public:
  Anything(Bytes pool, std::uint64_t seed) : pool_(pool), at_(pool), random_(seed) { at_.run(); }

  void step() {
    switch (random_() % 6) {
      case 0:
      case 1: ask(); break;
      case 2: withdraw(); break;
      case 3: give_back(); break;
      case 4: let_go(); break;
      default: at_.finish_one();
    }
    at_.now += std::chrono::milliseconds(random_() % 3);
    at_.advance();
    note();
  }
  // Everybody ends what they do; all that was asked for must come.
  void end() {
    for (auto& [lease, extent] : kept_) at_.driver.let_go(extent.id);
    kept_.clear();
    at_.pass_in_steps(std::chrono::seconds(10));
    note();
    EXPECT_TRUE(at_.wanted.empty());
    while (!lent_.empty()) give_back();
    for (auto& [lease, extent] : kept_) at_.driver.let_go(extent.id);
    kept_.clear();
    at_.pass_in_steps(std::chrono::seconds(10));
    note();
    EXPECT_TRUE(returned_.empty());
    EXPECT_EQ(at_.store.warm(), pool_);
    EXPECT_EQ(at_.driver.handled(0), pool_);
    EXPECT_TRUE(at_.store.settled());
  }

 private:
  Bytes free() const {
    Bytes used;
    for (const auto& [request, bytes] : at_.wanted) used += bytes;
    for (const Extent& extent : lent_) used += extent.size;
    for (const auto& [lease, extent] : returned_) used += extent.size;
    return pool_ - used;
  }
  void ask() {
    const std::uint64_t most = free().count / mebibytes(2).count;
    if (most == 0) return;
    const std::uint64_t pieces = random_() % 4 == 0 ? most : std::min<std::uint64_t>(most, 64);
    const Bytes bytes = mebibytes(2 * (1 + random_() % pieces));
    const Bytes preferences[] = {{}, mebibytes(2), mebibytes(3), bytes, kOneExtent, kOneExtent};
    at_.want(bytes, preferences[random_() % 6]);
  }
  void withdraw() {
    if (at_.wanted.empty()) return;
    auto one = at_.wanted.begin();
    std::advance(one, static_cast<std::ptrdiff_t>(random_() % at_.wanted.size()));
    at_.withdraw(one->first);
  }
  void give_back() {
    if (lent_.empty()) return;
    std::swap(lent_[random_() % lent_.size()], lent_.back());
    const Extent extent = lent_.back();
    lent_.pop_back();
    const LeaseId lease{++last_lease_};
    returned_[lease] = extent;
    if (random_() % 4 == 0)
      kept_[lease] = extent;
    else
      at_.driver.let_go(extent.id);
    at_.store.take_back(lease, extent);
    at_.advance();
  }
  void let_go() {
    if (kept_.empty()) return;
    at_.driver.let_go(kept_.begin()->second.id);
    kept_.erase(kept_.begin());
  }
  void note() {
    EXPECT_TRUE(at_.unobtainable.empty()) << "the ledger says that it is free";
    EXPECT_EQ(at_.store.missing(), Bytes{});
    for (auto& [request, extents] : std::exchange(at_.assembled, {})) {
      for (const Extent& extent : extents) {
        at_.driver.hold(extent.id);
        lent_.push_back(extent);
      }
    }
    for (const LeaseId lease : at_.freed) {
      EXPECT_FALSE(kept_.contains(lease)) << "a proof of what is in use";
      returned_.erase(lease);
    }
  }

  Bytes pool_;
  Turns at_;
  std::mt19937_64 random_;
  std::uint64_t last_lease_ = 0;
  std::vector<Extent> lent_;
  std::map<LeaseId, Extent> returned_;
  std::map<LeaseId, Extent> kept_;
};

TEST(StoreTurns, RandomUseServesFreeMemoryAndProvesNothingInUse) {
  for (const Bytes pool : {mebibytes(2), mebibytes(64), mebibytes(750), gibibytes(24)}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      Anything anything(pool, seed);
      for (int i = 0; i < 1500; ++i) anything.step();
      anything.end();
      ASSERT_FALSE(testing::Test::HasFailure()) << to_string(pool) << ", seed " << seed;
    }
  }
}

TEST(StoreTurns, FailingCreationDoesNotBreakUpTheWholePool) {
  Turns at(gibibytes(24));
  at.run();
  at.driver.fails = [](const Extent& extent) { return extent.size == mebibytes(20); };
  const RequestId request = at.want(mebibytes(20), kOneExtent);
  at.run();
  EXPECT_TRUE(at.unobtainable.contains(request));
  EXPECT_GE(at.store.warm(), gibibytes(23));
  EXPECT_EQ(at.store.warm() + at.store.missing(), gibibytes(24));
}

TEST(StoreTurns, RandomRefusalsLoseNoByte) {
  for (const unsigned percent : {2, 10, 50, 90}) {
    std::mt19937_64 random(percent);
    Turns at(gibibytes(2));
    at.run();
    at.driver.fails = [&](const Extent&) { return random() % 100 < percent; };
    std::uint64_t last_lease = 0;
    for (int i = 0; i < 1000; ++i) {
      const RequestId request =
          at.want(mebibytes(2 * (1 + random() % 100)), random() % 2 == 0 ? kOneExtent : Bytes{});
      for (std::uint64_t jobs = random() % 8; jobs != 0; --jobs) at.finish_one();
      if (at.wanted.contains(request)) at.withdraw(request);
      for (const auto& [one, extents] : std::exchange(at.assembled, {}))
        for (const Extent& extent : extents) at.store.take_back(LeaseId{++last_lease}, extent);
      at.now += std::chrono::milliseconds(random() % 3);
      at.advance();
    }
    at.driver.fails = nullptr;
    at.pass_in_steps(std::chrono::seconds(60));
    EXPECT_EQ(at.store.warm(), gibibytes(2)) << percent;
    EXPECT_EQ(at.store.missing(), Bytes{});
    EXPECT_EQ(at.freed.size(), last_lease);
    EXPECT_TRUE(at.store.settled());
  }
}

}  // namespace
}  // namespace gpumem::core
