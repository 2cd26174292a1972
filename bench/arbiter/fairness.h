#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "bench/arbiter/trace.h"

namespace gpumem::bench {

/// Who got what of what it was entitled to, while more was asked for than there is.
///
/// At a moment when the sessions of a device ask for more than its pool, a tenant is entitled to what its
/// guarantee covers of its demand, and to its part in the weighted max-min split of the rest, which is at
/// most its demand. A tenant's service is what it held beyond its guarantee, by what it was entitled to
/// beyond it, both summed over all such moments and devices.
class Fairness {
 public:
  explicit Fairness(const Trace& trace) : trace_(trace), sums_(trace.tenants.size()) {}

  struct Standing {
    std::uint32_t tenant = 0;
    Bytes demand;  ///< of all its sessions on the device, with what they hold
    Bytes held;
  };
  /// One moment of one device; `demand` of all is more than the pool.
  void sample(DeviceIndex device, std::span<const Standing> standings);

  struct Result {
    double jain = 0;          ///< Jain's index of the services: 1 if all are equal
    double jain_capped = 0;   ///< the same of the services cut off at 1
    double lowest_tenth = 0;  ///< the service that a tenth of the tenants do not pass
    double median = 0;
    std::size_t tenants = 0;  ///< that were entitled to something
  };
  Result result() const;

 private:
  struct Sums {
    double held = 0;
    double entitled = 0;
  };
  struct Claim {
    std::uint32_t tenant = 0;
    double demand = 0;  ///< beyond the guarantee
    double held = 0;    ///< likewise
    double weight = 1;
  };

  const Trace& trace_;
  std::vector<Sums> sums_;  ///< by tenant
  std::vector<Claim> claims_;
};

}  // namespace gpumem::bench
