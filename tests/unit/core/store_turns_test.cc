#include <random>

#include "tests/unit/core/store_fixture.h"

// Who waits for whom: requests, the stock and proofs share one driver, in the turns of a JobQueue.

namespace gpumem::core {
namespace {

/// A store, its driver, and a ledger that reserves no more than is free.
class Turns {
 public:
  explicit Turns(Bytes pool)
      : pool_(pool), store(0, pool, mebibytes(2), extent_ids, job_ids), driver({pool}) {}

  void advance() {
    Store::Progress progress = store.advance(now);
    for (Job& job : progress.jobs) jobs.push(job.turn, std::move(job));
    for (const JobId id : progress.hurried) jobs.hurry([id](const Job& job) { return job.id == id; });
    for (auto& one : progress.assembled) {
      EXPECT_EQ(total(one.extents), wanted.at(one.request));
      wanted.erase(one.request);
      assembled[one.request] = std::move(one.extents);
    }
    for (const RequestId id : progress.unobtainable) {
      unobtainable.insert(id);
      wanted.erase(id);
    }
    for (const LeaseId id : progress.freed) {
      EXPECT_TRUE(freed.insert(id).second) << "freed twice";
      quarantined.erase(id);
    }
    quarantined.insert(progress.quarantined.begin(), progress.quarantined.end());
  }
  RequestId want(Bytes bytes, Bytes largest = {}) {
    const RequestId request{++last_request};
    wanted[request] = bytes;
    store.want(request, bytes, largest);
    advance();
    return request;
  }
  void withdraw(RequestId request) {
    wanted.erase(request);
    store.withdraw(request);
    advance();
  }
  bool run_job() {
    if (jobs.empty()) return false;
    store.finish(driver.run(jobs.pop()), now);
    advance();
    return true;
  }
  void rest() {
    advance();
    while (run_job()) {
    }
  }
  void pass(Duration time) {
    const TimePoint end = now + time;
    for (rest(); store.next_deadline() && *store.next_deadline() <= end; rest())
      now = std::max(now, *store.next_deadline());
    now = end;
    rest();
  }

 private:
  Bytes pool_;

 public:
  IdSource<ExtentId> extent_ids;
  IdSource<JobId> job_ids;
  Store store;
  FakeDriver driver;
  TimePoint now{};
  JobQueue<Job> jobs;
  std::uint64_t last_request = 0;
  std::map<RequestId, Bytes> wanted;
  std::map<RequestId, std::vector<Extent>> assembled;
  std::set<RequestId> unobtainable;
  std::set<LeaseId> freed;
  std::set<LeaseId> quarantined;
};

TEST(StoreTurns, ProveNothingByMemoryOfAPoolThatIsNotCreatedYet) {
  Turns at(mebibytes(64));
  at.store.adopt(mebibytes(2));
  ASSERT_EQ(at.driver.steal(0, mebibytes(2)), mebibytes(2)) << "a process holds what was lent before";
  at.driver.fails = [](const Extent& extent) { return extent.size == mebibytes(32); };
  at.rest();
  ASSERT_EQ(at.store.missing(), mebibytes(32));
  const RequestId request = at.want(mebibytes(4), kOneExtent);
  at.store.take_back(LeaseId{1}, {{}, mebibytes(2)});
  at.rest();
  EXPECT_TRUE(at.assembled.contains(request));
  EXPECT_FALSE(at.freed.contains(LeaseId{1}));
  at.pass(std::chrono::seconds(1));
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

TEST(StoreTurns, ServeALargeRequestThoughAnotherAsksAndWithdrawsAllTheTime) {
  Turns at(gibibytes(24));
  at.rest();
  Churn other(at, mebibytes(1100));
  for (int i = 0; i < 6; ++i) other.go_on();
  const RequestId large = at.want(gibibytes(24) - mebibytes(1100));
  for (int i = 0; i < 500 && at.wanted.contains(large); ++i) {
    at.run_job();
    other.go_on();
  }
  EXPECT_TRUE(at.assembled.contains(large));
}

TEST(StoreTurns, ProveMemoryFreeThoughAnotherAsksAndWithdrawsAllTheTime) {
  Turns at(gibibytes(24));
  at.rest();
  Churn other(at, gibibytes(3));
  for (int i = 0; i < 6; ++i) other.go_on();
  const RequestId mine = at.want(mebibytes(64), kOneExtent);
  while (!at.assembled.contains(mine)) at.run_job();
  at.store.take_back(LeaseId{1}, at.assembled.at(mine).front());
  at.advance();
  for (int i = 0; i < 500 && !at.freed.contains(LeaseId{1}); ++i) {
    at.run_job();
    other.go_on();
  }
  EXPECT_TRUE(at.freed.contains(LeaseId{1}));
}

}  // namespace
}  // namespace gpumem::core
