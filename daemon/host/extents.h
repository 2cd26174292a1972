#pragma once
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "daemon/core/policy.h"
#include "daemon/host/device_worker.h"

namespace gpumem::host {

/// Every extent in the broker's hands, and the workers that make and destroy them.
/// Threads  the loop's.
class Extents {
 public:
  using Done = std::function<void(const core::JobResult&)>;

  /// `devices`  those of the policy, in its order. `done` is called on the loop's thread.
  /// Errors  kNotFound: a device of the policy that the driver does not show.
  static Result<std::unique_ptr<Extents>> create(boost::asio::io_context& loop, const cuda::Driver& driver,
                                                 const std::vector<core::DevicePolicy>& devices, Done done);

  void run(core::Job job);
  /// The descriptor to send to a client; the extent's own.
  int descriptor(ExtentId id) const;
  /// Its fabric handle; none: the device has none, or the driver refused.
  std::optional<cuda::FabricHandle> fabric_handle(ExtentId id) const;

 private:
  Extents(boost::asio::io_context& loop, Done done) : loop_(loop), done_(std::move(done)) {}
  void take_in(DriverResult result);

  boost::asio::io_context& loop_;
  Done done_;
  std::unordered_map<ExtentId, HeldExtent> held_;
  std::vector<std::unique_ptr<DeviceWorker>> workers_;  // last: they end before what they post to goes
};

}  // namespace gpumem::host
