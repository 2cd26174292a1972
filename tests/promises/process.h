#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/words/types.h"

namespace gpumem::core::promises {

/// How a process misbehaves. One that does not, in any way, is honest: it gives back what it is asked for
/// before the deadline, acknowledges offers, unmaps what it returns and takes nothing past the broker.
struct Traits {
  bool ignores_pressure = false;
  bool keeps_returned = false;  ///< goes on using what it has given back
  bool leaves_lane = false;     ///< closes its lane, and lives on with its memory mapped
  bool declares = false;        ///< memory that it does not have
  bool takes_past = false;      ///< memory past the broker
  bool cannot_be_ended = false;
  bool suspends = false;
  bool ignores_sigterm = false;
  bool churns = false;  ///< opens and closes sessions and slices
  bool says_spent = false;
  bool asks_hugely = false;  ///< for much, of several devices
  bool operator==(const Traits&) const = default;
  bool honest() const { return *this == Traits{}; }
};

/// An extent that a process has mapped.
struct Mapping {
  SessionId session;
  SliceId slice;
  LeaseId lease;
  DeviceIndex device = 0;
  Bytes size;
  bool is_private = false;  ///< a file of the host store for this process alone
  bool returned = false;    ///< given back, as it says
  bool is_void = false;     ///< a private file that was given back: it has no bytes
};

/// A region that a process has mapped.
struct RegionMapping {
  SessionId session;
  DeviceIndex device = 0;
  std::vector<ExtentId> extents;
  std::string tenant;     ///< of the session
  bool released = false;  ///< unmapped, as it says
};

/// A process. Its memory is its own until it unmaps it or ends, whatever becomes of its sessions.
struct Process {
  std::int64_t pid = 0;
  std::uint32_t uid = 0;
  Traits traits;
  std::map<ExtentId, Mapping> mapped;
  std::map<ImportId, RegionMapping> regions;
  SessionId session;                                  ///< with a lane; none: not connected
  CommandJobId begun;                                 ///< the job that `session` has begun
  CommandJobId joined;                                ///< the job that it is in
  std::vector<SessionId> sessions;                    ///< that the broker has not forgotten
  std::map<DeviceIndex, SliceId> slices;              ///< of `session`
  std::vector<std::pair<SessionId, GrantId>> offers;  ///< not acknowledged
  Bytes pinned;                                       ///< host memory that it pins by itself
  std::vector<Bytes> past;                            ///< held past the broker, by device
  std::vector<Bytes> stolen;  ///< of what the broker failed to create again, by device
  struct Contexts {
    Bytes bytes;
    Bytes of_pool;      ///< of `bytes`: room that the broker has made
    int announced = 0;  ///< and not made yet
  };
  std::vector<Contexts> contexts;  ///< by device
  bool suspended = false;
  bool sigterm_pending = false;
  bool reacts = false;  ///< is about to give back what it is asked for
  bool dying = false;
};

}  // namespace gpumem::core::promises
