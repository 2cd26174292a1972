#pragma once
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/core/sessions/jobs.h"

namespace gpumem::core {

/// Takes reserved memory that is not on loan from jobs for others who wait. Debts and claims get it at once,
/// the line once the reservation has not been used for a while (Policy::reserve_idle). Nobody is asked for
/// it, and nobody loses memory on loan. Memory that the driver does not give cannot be reserved.
class Reservations {
 public:
  /// Both outlive it.
  Reservations(State& state, Jobs& jobs)
      : state_(state), jobs_(jobs), devices_(state.policy.devices.size()) {}

  /// Gives debts and claims what they lack. To be called before anything is granted: what a job returns for
  /// them is not lent to the job again.
  void pay();
  /// Gives a context what it lacks, of the jobs of its own tenant, first of its own job. Nothing, if that has
  /// reserved all of it: see grant_of_job().
  void give_way_to(const Request& context);
  /// Grants a context that waits what its own job has reserved, though others are first: the job has waited
  /// already. None: the job has not so much, or the memory is promised to others.
  std::optional<Granted> grant_of_job(RequestId context);
  /// Does pay(), and gives the line what it may have. Answers whether any was taken: there may be something
  /// to grant.
  bool give_way(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

 private:
  enum class For { kDebt, kClaims, kLine };
  // Memory that others need from jobs at or below `below` (none: all). `request`, `now`  of the line.
  struct Need {
    For whom;
    TenantId below;
    Bytes bytes;
    const Request* request = nullptr;
    TimePoint now{};
  };
  struct Device {
    std::pair<std::uint64_t, std::uint64_t> seen{};  ///< revisions at the latest look
    std::optional<TimePoint> due;                    ///< when a reservation has been idle for long enough
  };

  /// The job of the context's session, if it has reserved all that the context lacks.
  CommandJob* covering(const Request& context) const;
  bool give_way(DeviceIndex device, TimePoint now);
  bool pay(DeviceIndex device);
  bool give_way_to_line(DeviceIndex device, TimePoint now);
  Bytes idle(DeviceIndex device, TimePoint now);
  bool take(DeviceIndex device, const Need& need);
  Bytes takable(const CommandJob& job, DeviceIndex device, const Need& need,
                const std::map<TenantId, Bytes>& taken) const;

  State& state_;
  Jobs& jobs_;
  std::vector<Device> devices_;
};

}  // namespace gpumem::core
