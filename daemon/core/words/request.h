#pragma once
#include <algorithm>
#include <boost/container/small_vector.hpp>

#include "base/ids.h"
#include "daemon/core/words/types.h"

namespace gpumem::core {

/// A growth that asks for memory: of one device, or of several, all or nothing. Or a job's reservation, or
/// room for a context: what the driver lacks for it.
struct Request {
  enum class Kind { kGrowth, kReservation, kContext };
  struct Part {
    SliceId slice;  ///< of a growth
    DeviceIndex device = 0;
    Bytes bytes;
    Bytes min_bytes;  ///< content with this; at most `bytes`
    Bytes largest{};  ///< extents are preferably not larger; zero: no preference; or kOneExtent
  };
  using Parts = boost::container::small_vector<Part, 1>;
  RequestId id;
  SessionId session;
  TenantId tenant;  ///< the leaf that will be charged
  Parts parts;      ///< each of another device
  TimePoint asked;
  Duration wait{};     ///< as asked for
  TimePoint deadline;  ///< not before `asked + wait`
  TimePoint due{};     ///< the deadline if no memory were created for it
  /// False: no guarantee of others is lent to it, since its session could not be made to return the memory.
  bool may_borrow = true;
  bool is_recorded = false;   ///< the next broker is told that it waits
  std::uint64_t account = 0;  ///< of the user or the pod that asks (Peer::account)
  CommandJobId job{};         ///< the job of the leaf `tenant`; none: of no job
  bool is_probe = false;      ///< as of Grow
  Kind kind = Kind::kGrowth;
  Bytes context{};    ///< of kContext: what the context is expected to take in all
  Duration unread{};  ///< so long it had been there when the broker read it; as of Grow
  Duration before{};  ///< so long it has waited at an earlier broker, beside `wait`

  bool is_growth() const { return kind == Kind::kGrowth; }
  bool is_reservation() const { return kind == Kind::kReservation; }
  bool is_context() const { return kind == Kind::kContext; }
  bool is_for(DeviceIndex device) const {
    return std::ranges::find(parts, device, &Part::device) != parts.end();
  }
  /// The request has a part on the device.
  const Part& part_on(DeviceIndex device) const { return *std::ranges::find(parts, device, &Part::device); }
};

/// A request that is granted: its bytes are charged as offered, reserved, or outside the pool.
struct Granted {
  Request request;
  boost::container::small_vector<Bytes, 1> bytes;  ///< of each part
};

}  // namespace gpumem::core
