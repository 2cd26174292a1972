#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/words/types.h"

namespace gpumem::core {

/// The used bytes of a device by holder, as of one look at the driver:
/// used = created + contexts + declared + past_broker + unexplained().
struct Accounting {
  /// A process as the driver lists it. What it has besides its leases is divided.
  struct Process {
    std::int64_t pid = 0;
    std::uint32_t uid = 0;
    std::string command{};
    std::string tenant{};  ///< the tenant of its session, or the charged one; empty: none
    Bytes used{};          ///< the driver's figure, which may contain leases; zero: not told
    Bytes context{};
    Bytes declared{};  ///< the part of its sessions' declarations that is in use
    Bytes past_broker{};
    bool is_client = false;
    bool is_estimate = false;  ///< the parts are what it is charged: the driver's figure does not tell them
  };

  Bytes total{};  ///< as the driver says; zero: not told
  Bytes free{};
  Bytes used{};
  Bytes created{};  ///< extents of the pool, lent or not
  Bytes contexts{};
  Bytes declared{};
  Bytes past_broker{};
  Bytes moving{};  ///< the most that the broker's own driver calls created or destroyed during the look
  /// False: the driver lists processes, and tells the memory of none. Then contexts and memory past the
  /// broker are not known, and unexplained() contains them.
  bool tells_processes = false;
  std::vector<Process> processes{};

  void add(Process one) {
    contexts += one.context;
    declared += one.declared;
    past_broker += one.past_broker;
    processes.push_back(std::move(one));
  }
  /// Used bytes without a holder. Negative: the driver has got back memory that the ledger still charges.
  std::int64_t unexplained() const {
    const Bytes known = created + contexts + declared + past_broker;
    return static_cast<std::int64_t>(used.count - known.count);
  }
};

}  // namespace gpumem::core
