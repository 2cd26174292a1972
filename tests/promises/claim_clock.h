#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/memory/store.h"
#include "tests/promises/watched_broker.h"

namespace gpumem::core::promises {

/// A request that has no answer yet.
struct OpenRequest {
  SessionId session;
  std::string tenant;
  CommandJobId job{};  ///< that the session is in; of a reservation: the job that it is for
  bool reserves = false;
  bool is_context = false;
  bool honest = false;   ///< of a tenant whose processes all are
  bool granted = false;  ///< charged; its memory is being brought together
  std::vector<std::pair<DeviceIndex, Bytes>> least;
  TimePoint asked;
  TimePoint deadline;
};

/// How long requests within a guarantee have waited. A request is promised while its least fits in what its
/// tenant's guarantee has yet to give, and in its job's limit. Each tenant has one such request at a time.
class ClaimClock {
 public:
  /// What reclaim deadline and grace do not include: the longest pause between two proofs that memory is
  /// free, and the jobs, deaths and answers of the world, each of at most 20 ms, about them.
  static constexpr Duration kSlack = Store::kLongestPause + std::chrono::milliseconds(100);

  using Accounts = std::map<std::pair<std::string, DeviceIndex>, Account>;
  using Jobs = std::map<CommandJobId, JobView>;
  /// `excused`  devices on which memory is physically taken past the broker.
  /// Answers what is broken; empty: nothing.
  std::string update(const WatchedBroker& broker, const std::map<RequestId, OpenRequest>& open,
                     const Accounts& accounts, const Jobs& jobs, const std::vector<bool>& excused,
                     TimePoint now);
  /// Whether the request is promised at present.
  bool is_promised(RequestId request) const { return since_.contains(request); }
  /// The longest that one has waited beyond deadline and grace; negative: none did.
  Duration longest_beyond() const { return longest_beyond_; }
  std::uint64_t seen() const { return seen_; }

 private:
  std::map<RequestId, TimePoint> since_;
  Duration longest_beyond_ = Duration::min();
  std::uint64_t seen_ = 0;
};

}  // namespace gpumem::core::promises
