#include "daemon/kubernetes/device_plugin/kubelet_checkpoint.h"

#include "daemon/kubernetes/json_fields.h"

namespace gpumem::kubernetes {
namespace {

Error not_a_checkpoint(const std::string& what) {
  return {Code::kInvalidArgument, "it is damaged, or of a kubelet that this plugin does not know: " + what};
}

// Lists by NUMA node. A kubelet writes null for an empty one.
Result<void> add_units(const Json& by_node, UnitSet& units) {
  const Error wrong = not_a_checkpoint("DeviceIDs are no lists of names");
  if (!by_node.is_object() && !by_node.is_null()) return wrong;
  for (const auto& [node, ids] : by_node.items()) {
    if (!ids.is_array() && !ids.is_null()) return wrong;
    for (const Json& id : ids) {
      if (!id.is_string()) return wrong;
      units.insert(id.get<std::string>());
    }
  }
  return {};
}

// The prefix that the names of this plugin's resources share, whatever the unit.
std::string_view family_of(std::string_view resource) { return resource.substr(0, resource.rfind('-') + 1); }

Result<void> add_entry(const Json& entry, const std::string& resource, KubeletRecord& record) {
  const std::string name = text_field(entry, {"ResourceName"});
  if (name.empty()) return not_a_checkpoint("an entry names no resource");
  if (!name.starts_with(family_of(resource))) return {};
  const std::string pod = text_field(entry, {"PodUID"});
  if (pod.empty()) return not_a_checkpoint("an entry names no pod");
  if (name == resource) return add_units(field(entry, {"DeviceIDs"}), record.held[pod]);
  record.of_other_size.insert(pod);
  return {};
}

Result<void> check_owners(const HeldUnits& held) {
  std::map<std::string, std::string> owners;
  for (const auto& [pod, units] : held) {
    for (const std::string& unit : units) {
      const auto [there, is_first] = owners.emplace(unit, pod);
      if (!is_first) return not_a_checkpoint(unit + " is given to the pods " + there->second + " and " + pod);
    }
  }
  return {};
}

}  // namespace

Result<KubeletRecord> read_kubelet_checkpoint(std::string_view text, const std::string& resource) {
  const Json json = parse_json(text);
  const Json& entries = field(json, {"Data", "PodDeviceEntries"});
  if (!field(json, {"Data", "RegisteredDevices"}).is_object() || (!entries.is_array() && !entries.is_null()))
    return not_a_checkpoint("it lacks the lists of a checkpoint");
  KubeletRecord record;
  for (const Json& entry : entries)
    if (auto added = add_entry(entry, resource, record); !added) return added.error();
  std::erase_if(record.held, [](const auto& one) { return one.second.empty(); });
  if (auto checked = check_owners(record.held); !checked) return checked.error();
  return record;
}

}  // namespace gpumem::kubernetes
