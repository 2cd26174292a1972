#pragma once
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>

#include "daemon/core/memory/job.h"
#include "tests/support/fake_driver.h"

namespace gpumem::core {

inline Bytes total(const std::vector<Extent>& extents) {
  Bytes sum;
  for (const Extent& extent : extents) sum += extent.size;
  return sum;
}

/// A store of `pool` in pieces of 2 MiB, and its driver of a device of `total` (zero: of the pool's size).
class StoreWorld {
 public:
  explicit StoreWorld(Bytes pool, Bytes total = {})
      : store(0, pool, mebibytes(2), extent_ids, job_ids), driver({total.is_zero() ? pool : total}) {}

  void advance() {
    Store::Progress progress = store.advance(now);
    for (auto& one : progress.assembled) {
      if (wanted.contains(one.request)) {
        EXPECT_EQ(total(one.extents), wanted.at(one.request));
      }
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
    for (const auto& [request, free] : progress.looked) looked[request] = free;
    for (Job& job : progress.jobs) jobs.push(job.turn, std::move(job));
    for (const JobId id : progress.hurried) jobs.hurry([id](const Job& job) { return job.id == id; });
  }
  void finish_one() {
    if (jobs.empty()) return;
    const JobResult result = driver.run(jobs.pop());
    store.finish(result, now);
    advance();
  }
  void run() {
    advance();
    while (!jobs.empty()) finish_one();
  }
  void pass(Duration time) {
    now += time;
    run();
  }
  // Passes time from retry to retry. Answers how many there were.
  std::size_t pass_in_steps(Duration time) {
    run();
    const TimePoint end = now + time;
    std::size_t steps = 0;
    for (auto next = store.next_deadline(); next && *next <= end; next = store.next_deadline(), ++steps) {
      pass(*next - now);
    }
    now = end;
    return steps;
  }
  /// A request of a number of its own.
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
  std::vector<Extent> lend(RequestId id, Bytes bytes) {
    store.want(id, bytes);
    run();
    EXPECT_TRUE(assembled.contains(id));
    for (const Extent& extent : assembled[id]) driver.hold(extent.id);
    return assembled[id];
  }
  // Gives the extents back as leases `first`, `first` + 1, ...
  void take_back(const std::vector<Extent>& extents, std::uint64_t first) {
    for (const Extent& extent : extents) store.take_back(LeaseId{first++}, extent);
  }
  void let_go(const std::vector<Extent>& extents) {
    for (const Extent& extent : extents) driver.let_go(extent.id);
  }

  IdSource<ExtentId> extent_ids;
  IdSource<JobId> job_ids;
  Store store;
  FakeDriver driver;
  TimePoint now{};
  JobQueue<Job> jobs;
  std::uint64_t last_request = 0;
  std::map<RequestId, Bytes> wanted;  ///< by want(), and not answered
  std::map<RequestId, std::vector<Extent>> assembled;
  std::set<RequestId> unobtainable;
  std::set<LeaseId> freed;
  std::set<LeaseId> quarantined;
  std::map<RequestId, std::optional<Bytes>> looked;  ///< free bytes, by Store::look()
};

class StoreOf : public testing::Test, protected StoreWorld {
 protected:
  using StoreWorld::StoreWorld;
};

class StoreTest : public StoreOf {
 protected:
  static constexpr Bytes kPool = mebibytes(64);
  static constexpr Duration kLong = std::chrono::seconds(10);

  StoreTest() : StoreOf(kPool) {}
};

}  // namespace gpumem::core
