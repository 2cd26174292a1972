#include "daemon/kubernetes/plugin/slice_publisher.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "daemon/kubernetes/http/api_values.h"

namespace gpumem::kubernetes {
namespace {

constexpr Bytes kStep = mebibytes(2);
constexpr std::size_t kLongestAttribute = 64;  // bytes, says the API

void find_dropped(const Json& sent, const Json& stored, const std::string& name,
                  std::set<std::string>& dropped) {
  if (sent.is_object()) {
    for (const auto& [key, value] : sent.items()) find_dropped(value, field(stored, {key}), key, dropped);
  } else if (sent.is_array()) {
    for (std::size_t i = 0; i < sent.size(); ++i)
      find_dropped(sent[i], stored.is_array() && i < stored.size() ? stored[i] : Json(), name, dropped);
  } else if (stored.is_null()) {
    dropped.insert(name);
  }
}

Json without_generation(Json spec) {
  if (spec.is_object() && spec.contains("pool") && spec["pool"].is_object()) spec["pool"].erase("generation");
  return spec;
}

constexpr const char* kSlices = "/apis/resource.k8s.io/v1/resourceslices";
constexpr std::size_t kMostDevices = 128;

std::string version_of(const Json& slice) { return text_field(slice, {"metadata", "resourceVersion"}); }

}  // namespace

Json device_entry(const Device& device) {
  const std::string all = quantity_text(device.pool);
  const std::string step = quantity_text(kStep);
  Json attributes = {{"uuid", {{"string", device.uuid.substr(0, kLongestAttribute)}}}};
  if (!device.model.empty())
    attributes["productName"] = {{"string", device.model.substr(0, kLongestAttribute)}};
  const Json policy = {{"default", all}, {"validRange", {{"min", step}, {"max", all}, {"step", step}}}};
  return {{"name", device.name},
          {"attributes", std::move(attributes)},
          {"allowMultipleAllocations", true},
          {"capacity", {{"memory", {{"value", all}, {"requestPolicy", policy}}}}}};
}

Json slice_spec(const Publisher& publisher, const std::vector<Device>& devices, std::uint64_t generation) {
  Json entries = Json::array();
  for (const Device& device : devices) {
    if (device.pool >= kStep + kStep) entries.push_back(device_entry(device));
  }
  Json spec = {{"driver", publisher.driver},
               {"nodeName", publisher.node},
               {"pool", {{"name", publisher.node}, {"generation", generation}, {"resourceSliceCount", 1}}}};
  if (!entries.empty()) spec["devices"] = std::move(entries);  // the server leaves an empty list out
  return spec;
}

bool is_same_pool(const Json& one, const Json& other) {
  return without_generation(one) == without_generation(other);
}

std::string dropped_fields(const Json& sent, const Json& stored) {
  std::set<std::string> dropped;
  find_dropped(sent, stored, {}, dropped);
  std::string names;
  for (const std::string& name : dropped) names += (names.empty() ? "" : ", ") + name;
  return names;
}

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
    generation = std::max(generation, count_field(one, {"spec", "pool", "generation"}));
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
