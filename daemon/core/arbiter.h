#pragma once
#include <deque>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "daemon/core/ledger.h"

namespace gpumem::core {

/// A growth that asks for memory.
struct Request {
  RequestId id;
  SessionId session;
  SliceId slice;
  TenantId tenant;
  DeviceIndex device = 0;
  Bytes bytes;
  TimePoint asked;
  Duration wait{};     ///< as asked for
  TimePoint deadline;  ///< not before `asked + wait`
};

/// Decides grant or wait, against the ledger. Requests wait in the order they came; one inside its
/// tenant's guarantee never waits for one that is not, and one that only its own tenant's limit holds
/// back holds up nobody else. After a grant that overtakes, the line is looked at from its front again.
class Arbiter {
 public:
  explicit Arbiter(Ledger& ledger) : ledger_(ledger), lines_(ledger.device_count()) {}

  void add(Request request) { lines_[request.device].push_back(request); }

  /// Takes from the line of `device` every request that can be granted now, charged as offered.
  std::vector<Request> admit(DeviceIndex device);

  /// Takes a request from its line; nothing, if it does not wait.
  std::optional<Request> remove(RequestId id);
  /// Takes every request of the session.
  std::vector<Request> remove_all_of(SessionId session);
  /// Takes every request whose deadline has come.
  std::vector<Request> remove_expired(TimePoint now);

  std::optional<TimePoint> next_deadline() const;
  std::size_t waiting(DeviceIndex device) const { return lines_[device].size(); }
  std::size_t waiting(DeviceIndex device, TenantId tenant) const;
  Bytes waiting_bytes(SliceId slice) const;
  std::size_t waiting_of(SessionId session) const;
  /// Requests in the line that came before `request`, which may have left it.
  std::size_t waiting_before(const Request& request) const;

 private:
  bool admit_once(DeviceIndex device, std::vector<Request>& granted);
  template <class Predicate>
  std::vector<Request> remove_if(Predicate&& leaves);

  Ledger& ledger_;
  std::vector<std::deque<Request>> lines_;
};

}  // namespace gpumem::core
