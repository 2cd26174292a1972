#pragma once
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "daemon/kubernetes/device_plugin/units.h"
#include "gpumem/result.h"
#include "kubelet/pod_resources.grpc.pb.h"

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

/// A pod that the kubelet runs, and the units that it lists for it.
struct ListedPod {
  std::string space;  ///< its namespace
  std::string name;
  UnitSet units;
};

/// The kubelet's allocations. Its checkpoint has the UIDs of pods, and the service PodResources has their
/// names; neither has both. Threads  any.
class KubeletAllocations {
 public:
  struct Options {
    std::string resource;
    std::filesystem::path checkpoint;     ///< kubelet_internal_checkpoint
    std::filesystem::path pod_resources;  ///< the socket of that service
    std::chrono::milliseconds patience{5000};
  };

  KubeletAllocations(const Options& options, OfferedUnits& offered);

  /// The checkpoint as it is. Errors  kUnavailable: there is none, as before the kubelet has registered the
  /// first plugin; of the file; of read_kubelet_checkpoint. All name the file.
  Result<KubeletRecord> last() const;

  /// The checkpoint after the kubelet has written it once more, at this call's wish: what it has allocated
  /// before is in it. The kubelet writes it whenever it hears a list of units. Blocks. Errors  kUnavailable:
  /// it has not, within `patience`; those of last().
  Result<KubeletRecord> fresh();

  /// The pods that have units. The kubelet frees what ended pods had, which its next checkpoint shows.
  /// Blocks, 5 s at most. Errors  kUnavailable: the service does not answer; kInternal: not as it should.
  Result<std::vector<ListedPod>> pods();

  /// Something has changed in the checkpoint's folder.
  void notice_change();

 private:
  Options options_;
  OfferedUnits& offered_;
  std::unique_ptr<::v1::PodResourcesLister::Stub> lister_;
  Mutex mutex_;
  Condition changed_;
  std::uint64_t changes_ GPUMEM_GUARDED_BY(mutex_) = 0;
};

}  // namespace gpumem::kubernetes
