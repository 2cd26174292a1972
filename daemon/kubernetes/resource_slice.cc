#include "daemon/kubernetes/resource_slice.h"

#include <set>

#include "daemon/kubernetes/quantity.h"

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

}  // namespace gpumem::kubernetes
