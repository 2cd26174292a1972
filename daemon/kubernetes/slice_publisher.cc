#include "daemon/kubernetes/slice_publisher.h"

#include <algorithm>

#include "base/log.h"

namespace gpumem::kubernetes {
namespace {

constexpr const char* kSlices = "/apis/resource.k8s.io/v1/resourceslices";
constexpr std::size_t kMostDevices = 128;

std::uint64_t generation_of(const Json& slice) {
  const Json& generation = field(slice, {"spec", "pool", "generation"});
  return generation.is_number_unsigned() ? generation.get<std::uint64_t>() : 0;
}

std::string version_of(const Json& slice) { return text_field(slice, {"metadata", "resourceVersion"}); }

}  // namespace

// The node: with it goes the slice.
Json SlicePublisher::owner() {
  auto node = server_.get("/api/v1/nodes/" + escaped(publisher_.node));
  if (!node) {
    if (!std::exchange(told_owner_, true))
      spdlog::warn("the ResourceSlice has no owner, and has to be removed by hand with the node: {}",
                   node.error().message);
    return Json::array();
  }
  return Json::array({Json{{"apiVersion", "v1"},
                           {"kind", "Node"},
                           {"name", publisher_.node},
                           {"uid", text_field(*node, {"metadata", "uid"})},
                           {"controller", true}}});
}

Result<Json> SlicePublisher::store(const Json* there, Json spec) {
  Json slice = {{"apiVersion", "resource.k8s.io/v1"}, {"kind", "ResourceSlice"}, {"spec", std::move(spec)}};
  if (there != nullptr) {
    slice["metadata"] = field(*there, {"metadata"});
    return server_.replace(std::string(kSlices) + "/" + escaped(text_field(*there, {"metadata", "name"})),
                           slice);
  }
  slice["metadata"] = {{"name", publisher_.slice_name()}};
  if (Json owners = owner(); !owners.empty()) slice["metadata"]["ownerReferences"] = std::move(owners);
  return server_.create(kSlices, slice);
}

void SlicePublisher::look_for_dropped(const Json& sent, const Json& stored) {
  const std::string dropped = dropped_fields(sent, stored);
  if (dropped.empty()) return;
  spdlog::error(
      "the API server has dropped {} from the ResourceSlice: it lacks the feature DRAConsumableCapacity, "
      "which is on from "
      "Kubernetes 1.36. Claims of this driver cannot be prepared until it is on",
      dropped);
}

Result<void> SlicePublisher::reconcile(const std::vector<Device>& devices) {
  if (devices.size() > kMostDevices)
    return Error{Code::kFailedPrecondition,
                 "a ResourceSlice holds 128 devices; the broker lends " + std::to_string(devices.size())};
  auto list = server_.get(std::string(kSlices) + "?fieldSelector=" +
                          escaped("spec.driver=" + publisher_.driver + ",spec.nodeName=" + publisher_.node));
  if (!list && list.error().code == Code::kNotFound)
    return Error{Code::kFailedPrecondition,
                 "the API server does not serve resource.k8s.io/v1: Kubernetes 1.34 or newer is needed"};
  if (!list) return list.error();
  const Json* ours = nullptr;
  std::uint64_t generation = 0;
  for (const Json& one : array_field(*list, {"items"})) {
    generation = std::max(generation, generation_of(one));
    if (text_field(one, {"metadata", "name"}) == publisher_.slice_name()) ours = &one;
  }
  Json spec = slice_spec(publisher_, devices, generation + 1);
  const bool is_as_stored = ours != nullptr && version_of(*ours) == version_ && is_same_pool(spec, sent_);
  if (ours == nullptr || (!is_as_stored && !is_same_pool(spec, field(*ours, {"spec"})))) {
    auto stored = store(ours, spec);
    if (!stored) return stored.error();
    look_for_dropped(spec, field(*stored, {"spec"}));
    version_ = version_of(*stored);
    sent_ = std::move(spec);
    spdlog::info("ResourceSlice {} is published: {} devices", publisher_.slice_name(), devices.size());
  }
  for (const Json& one : array_field(*list, {"items"})) {
    if (&one == ours) continue;
    auto removed =
        server_.remove(std::string(kSlices) + "/" + escaped(text_field(one, {"metadata", "name"})));
    if (!removed) return removed.error();
  }
  return {};
}

}  // namespace gpumem::kubernetes
