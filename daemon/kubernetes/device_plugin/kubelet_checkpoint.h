#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "daemon/kubernetes/device_plugin/units.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// The units that pods have, by the pod's UID: those of its containers together, at least one.
using HeldUnits = std::map<std::string, UnitSet>;

/// What the kubelet has allocated of the node's memory.
struct KubeletRecord {
  HeldUnits held;
  /// UIDs of pods that have units of another size, from when the plugin had another `--unit`.
  std::set<std::string> of_other_size;
};

/// Reads from the kubelet's record of what it has allocated, the file `kubelet_internal_checkpoint`, who has
/// units of `resource`. Its checksum is over the memory of a Go program and cannot be computed here; the
/// kubelet replaces the file as a whole. Errors  kInvalidArgument: not of that form, or a unit is given to
/// two pods.
Result<KubeletRecord> read_kubelet_checkpoint(std::string_view text, const std::string& resource);

}  // namespace gpumem::kubernetes
