#include "daemon/kubernetes/health_service.h"

#include "base/log.h"

namespace gpumem::kubernetes {
namespace {

void add_health(v1alpha1::NodeWatchResourcesResponse& response, const std::string& pool,
                const std::string& device, v1alpha1::HealthStatus health, const std::string& message) {
  v1alpha1::DeviceHealth& one = *response.add_devices();
  one.mutable_device()->set_pool_name(pool);
  one.mutable_device()->set_device_name(device);
  one.set_health(health);
  one.set_message(message);
}

std::int64_t unix_seconds() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

}  // namespace

v1alpha1::NodeWatchResourcesResponse health_of(const std::string& pool, const std::set<std::string>& claimed,
                                               const Result<std::vector<Device>>& lent, std::int64_t now) {
  v1alpha1::NodeWatchResourcesResponse response;
  std::set<std::string> others = claimed;
  if (lent) {
    for (const Device& device : *lent) {
      add_health(response, pool, device.name, v1alpha1::HEALTHY, {});
      others.erase(device.name);
    }
  }
  for (const std::string& name : others) {
    if (lent)
      add_health(
          response, pool, name, v1alpha1::UNHEALTHY,
          "the broker of this node does not lend it any more: it may have failed, or is not configured");
    else
      add_health(response, pool, name, v1alpha1::UNKNOWN, lent.error().message);
  }
  for (v1alpha1::DeviceHealth& one : *response.mutable_devices()) one.set_last_updated_time(now);
  return response;
}

grpc::Status HealthService::NodeWatchResources(
    grpc::ServerContext* context, const v1alpha1::NodeWatchResourcesRequest*,
    grpc::ServerWriter<v1alpha1::NodeWatchResourcesResponse>* writer) {
  do {
    if (context->IsCancelled() || !writer->Write(look())) break;
  } while (await_next());
  return grpc::Status::OK;
}

void HealthService::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
}

bool HealthService::await_next() {
  const auto due = std::chrono::steady_clock::now() + options_.period;
  const MutexLock lock(mutex_);
  while (!stopping_ && std::chrono::steady_clock::now() < due) stopped_.wait_until(mutex_, due);
  return !stopping_;
}

v1alpha1::NodeWatchResourcesResponse HealthService::look() {
  auto claimed = claims_.devices();
  if (!claimed) spdlog::warn("the claims' devices are not known: {}", claimed.error().message);
  return health_of(options_.pool, claimed ? *claimed : std::set<std::string>(), broker_.devices(),
                   unix_seconds());
}

}  // namespace gpumem::kubernetes
