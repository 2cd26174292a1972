#pragma once
#include <map>
#include <string>
#include <vector>

#include "tests/promises/broker_adapter.h"

namespace gpumem::core::promises {

/// A request that has no answer yet.
struct OpenRequest {
  SessionId session;
  std::string tenant;
  bool honest = false;   ///< of a tenant whose processes all are
  bool granted = false;  ///< charged; its memory is being brought together
  std::vector<std::pair<DeviceIndex, Bytes>> least;
  TimePoint asked;
  TimePoint deadline;
};

/// How long requests within a guarantee have waited. A request is promised while its least, with that of the
/// tenant's earlier ones, fits in what its tenant's guarantee has yet to give.
class ClaimClock {
 public:
  /// What reclaim deadline and grace do not include: the driver's time, and its longest pause between two
  /// proofs.
  static constexpr Duration kSlack = std::chrono::seconds(3);

  using Accounts = std::map<std::pair<std::string, DeviceIndex>, Account>;
  /// `excused`  devices on which memory is physically taken past the broker.
  /// Answers what is broken; empty: nothing.
  std::string update(const BrokerAdapter& broker, const std::map<RequestId, OpenRequest>& open,
                     const Accounts& accounts, const std::vector<bool>& excused, TimePoint now);
  /// Whether the request is promised at present.
  bool is_promised(RequestId request) const { return since_.contains(request); }
  /// The longest that one has waited.
  Duration longest() const { return longest_; }
  std::uint64_t seen() const { return seen_; }

 private:
  std::map<RequestId, TimePoint> since_;
  Duration longest_{};
  std::uint64_t seen_ = 0;
};

}  // namespace gpumem::core::promises
