#include "daemon/kubernetes/device_plugin/plugin_service.h"

#include <algorithm>

#include "base/log.h"

namespace gpumem::kubernetes {
namespace {

// The one specification of the plugin: Allocate does not say for which pod it is, and it is the same for all.
constexpr const char* kSpecification = "node";
// A handler is not told that its caller has gone: it looks.
constexpr std::chrono::milliseconds kLookForEnd{500};

grpc::Status status_of(const Error& error) {
  switch (error.code) {
    case Code::kInvalidArgument: return {grpc::StatusCode::INVALID_ARGUMENT, error.message};
    case Code::kUnavailable: return {grpc::StatusCode::UNAVAILABLE, error.message};
    default: return {grpc::StatusCode::FAILED_PRECONDITION, error.message};
  }
}

template <class Ids>
UnitSet set_of(const Ids& ids) {
  return UnitSet(ids.begin(), ids.end());
}

::v1beta1::ListAndWatchResponse list_of(const OfferedUnits::Devices& devices) {
  ::v1beta1::ListAndWatchResponse list;
  for (const OfferedDevice& device : devices) {
    for (std::uint64_t number = 0; number < device.units; ++number) {
      ::v1beta1::Device* one = list.add_devices();
      one->set_id(Unit{device.uuid, number}.id());
      one->set_health(device.healthy ? "Healthy" : "Unhealthy");
    }
  }
  return list;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& one : words) text += (text.empty() ? "" : ",") + one;
  return text;
}

}  // namespace

::v1beta1::DevicePluginOptions PluginService::wanted_calls() {
  ::v1beta1::DevicePluginOptions options;
  options.set_pre_start_required(true);
  options.set_get_preferred_allocation_available(true);
  return options;
}

Result<void> PluginService::write_specification() const {
  return options_.hand_over == HandOver::kRuntime ? specs_.write(kSpecification) : Result<void>();
}

grpc::Status PluginService::GetDevicePluginOptions(grpc::ServerContext*, const ::v1beta1::Empty*,
                                                   ::v1beta1::DevicePluginOptions* response) {
  *response = wanted_calls();
  return grpc::Status::OK;
}

grpc::Status PluginService::ListAndWatch(grpc::ServerContext* context, const ::v1beta1::Empty*,
                                         grpc::ServerWriter<::v1beta1::ListAndWatchResponse>* writer) {
  offered_.add_listener(1);
  std::uint64_t heard = 0;
  while (!offered_.is_stopped() && !context->IsCancelled()) {
    const auto devices = offered_.next(heard, kLookForEnd);
    if (devices && !writer->Write(list_of(*devices))) break;
  }
  offered_.add_listener(-1);
  return grpc::Status::OK;
}

grpc::Status PluginService::GetPreferredAllocation(grpc::ServerContext*,
                                                   const ::v1beta1::PreferredAllocationRequest* request,
                                                   ::v1beta1::PreferredAllocationResponse* response) {
  for (const auto& container : request->container_requests()) {
    const auto size = static_cast<std::size_t>(std::max(container.allocation_size(), 0));
    auto* answer = response->add_container_responses();
    for (const std::string& id : preferred_units(set_of(container.available_deviceids()),
                                                 set_of(container.must_include_deviceids()), size))
      answer->add_deviceids(id);
  }
  return grpc::Status::OK;
}

// Their UUIDs.
Result<std::vector<std::string>> PluginService::devices_of(const UnitSet& units) {
  if (units.empty()) return Error{Code::kInvalidArgument, "the container is to get no units"};
  if (auto checked = offered_.check(units); !checked) return checked.error();
  auto counts = units_by_device(units);
  if (!counts) return counts.error();
  std::uint64_t most = 0;
  for (const OfferedDevice& one : offered_.devices()) most = std::max(most, one.units);
  if (counts->size() > 1 && units.size() <= most)
    return Error{
        Code::kFailedPrecondition,
        "no GPU of this node has " + std::to_string(units.size()) +
            " units free, only several together; have the pod scheduled anew, or ask for fewer units"};
  std::vector<std::string> devices;
  for (const auto& [uuid, count] : *counts) devices.push_back(uuid);
  return devices;
}

void PluginService::describe(const std::vector<std::string>& devices,
                             ::v1beta1::ContainerAllocateResponse& answer) const {
  if (options_.hand_over == HandOver::kRuntime) {
    answer.add_cdi_devices()->set_name(DeviceSpecs::id(kSpecification));
    if (options_.device_kind.empty()) return;
    for (const std::string& uuid : devices)
      answer.add_cdi_devices()->set_name(options_.device_kind + "=" + uuid);
    return;
  }
  const ContainerEdits edits = specs_.edits();
  for (const ContainerEdits::Variable& one : edits.variables) (*answer.mutable_envs())[one.name] = one.value;
  for (const ContainerEdits::Mount& one : edits.mounts) {
    ::v1beta1::Mount* mount = answer.add_mounts();
    mount->set_host_path(one.host.string());
    mount->set_container_path(one.inside);
    mount->set_read_only(true);
  }
  // NVIDIA's runtime class reads it.
  if (!options_.device_kind.empty()) (*answer.mutable_envs())["NVIDIA_VISIBLE_DEVICES"] = joined(devices);
}

grpc::Status PluginService::Allocate(grpc::ServerContext*, const ::v1beta1::AllocateRequest* request,
                                     ::v1beta1::AllocateResponse* response) {
  for (const auto& container : request->container_requests()) {
    auto devices = devices_of(set_of(container.devices_ids()));
    if (!devices) {
      spdlog::error("not allocated: {}", devices.error().message);
      return status_of(devices.error());
    }
    describe(*devices, *response->add_container_responses());
  }
  return grpc::Status::OK;
}

grpc::Status PluginService::PreStartContainer(grpc::ServerContext*,
                                              const ::v1beta1::PreStartContainerRequest* request,
                                              ::v1beta1::PreStartContainerResponse*) {
  auto ready = claims_.prepare(set_of(request->devices_ids()));
  if (ready) ready = write_specification();
  if (ready) return grpc::Status::OK;
  spdlog::error("a container is not started: {}", ready.error().message);
  return status_of(ready.error());
}

}  // namespace gpumem::kubernetes
