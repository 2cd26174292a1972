#include "daemon/host/extents.h"

#include <boost/asio/post.hpp>

#include "base/check.h"
#include "base/crash_point.h"
#include "base/log.h"

namespace gpumem::host {

Result<std::unique_ptr<Extents>> Extents::create(boost::asio::io_context& loop, const cuda::Driver& driver,
                                                 const std::vector<core::DevicePolicy>& devices, Done done) {
  std::unique_ptr<Extents> extents(new Extents(loop, std::move(done)));
  for (const core::DevicePolicy& policy : devices) {
    auto uuid = cuda::parse_device_uuid(policy.uuid);
    if (!uuid) return uuid.error();
    auto device = driver.find(*uuid);
    if (!device) return device.error();
    extents->workers_.push_back(std::make_unique<DeviceWorker>(
        driver, (*device)->ordinal,
        policy.no_fabric.empty() ? cuda::HandleTypes::kDescriptorAndFabric : cuda::HandleTypes::kDescriptor,
        [self = extents.get()](DriverResult result) {
          auto shared = std::make_shared<DriverResult>(std::move(result));
          boost::asio::post(self->loop_, [self, shared] { self->take_in(std::move(*shared)); });
        }));
  }
  return extents;
}

void Extents::run(core::Job job) {
  const core::DeviceIndex device = job.device;
  DriverJob work{std::move(job), {}};
  for (const core::Job::Step& step : work.job.steps) {
    std::vector<HeldExtent>& destroy = work.destroy.emplace_back();
    for (const ExtentId id : step.destroy) {
      auto held = held_.extract(id);
      GPUMEM_CHECK(!held.empty(), "only what is held is destroyed");
      destroy.push_back(std::move(held.mapped()));
    }
  }
  workers_[device]->run(std::move(work));
}

int Extents::descriptor(ExtentId id) const {
  const auto held = held_.find(id);
  GPUMEM_CHECK(held != held_.end(), "only what is held is lent");
  return held->second.descriptor.get();
}

std::optional<cuda::FabricHandle> Extents::fabric_handle(ExtentId id) const {
  const auto held = held_.find(id);
  GPUMEM_CHECK(held != held_.end(), "only what is held is given out");
  return held->second.fabric;
}

void Extents::take_in(DriverResult result) {
  crash_at(CrashPoint::kExtentKnown);
  for (HeldExtent& extent : result.created) held_.emplace(extent.extent.id, std::move(extent));
  if (!result.last_error.empty()) {
    spdlog::debug("device {}: {} extents could not be created, the last because {}", result.result.device,
                  result.result.failed.size(), result.last_error);
  }
  done_(result.result);
}

}  // namespace gpumem::host
