#include "daemon/kubernetes/device_plugin/kubelet_allocations.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>

#include "base/system/files.h"
#include "daemon/kubernetes/http/api_values.h"
#include "daemon/kubernetes/http/whole_file.h"
#include "proto/channel.h"

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

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kListPatience{5};
constexpr int kLargestList = 64 << 20;  // bytes
// Where inotify tells nothing, as on some network file systems.
constexpr std::chrono::milliseconds kLook{500};

std::shared_ptr<grpc::Channel> lister_channel(const std::filesystem::path& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   100);  // a kubelet that was started anew is back soon
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetMaxReceiveMessageSize(kLargestList);
  return grpc::CreateCustomChannel(socket_target(socket), grpc::InsecureChannelCredentials(), arguments);
}

ListedPod listed(const ::v1::PodResources& pod, const std::string& resource) {
  ListedPod one{.space = pod.namespace_(), .name = pod.name(), .units = {}};
  for (const ::v1::ContainerResources& container : pod.containers()) {
    for (const ::v1::ContainerDevices& devices : container.devices())
      if (devices.resource_name() == resource)
        one.units.insert(devices.device_ids().begin(), devices.device_ids().end());
  }
  return one;
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

KubeletAllocations::KubeletAllocations(const Options& options, OfferedUnits& offered)
    : options_(options),
      offered_(offered),
      lister_(::v1::PodResourcesLister::NewStub(lister_channel(options.pod_resources))) {}

Result<KubeletRecord> KubeletAllocations::last() const {
  const std::string where = "the kubelet's checkpoint " + options_.checkpoint.string();
  auto text = read_text(options_.checkpoint);
  if (!text && text.error().code == Code::kNotFound)
    return Error{Code::kUnavailable, where + " is not there; is --kubelet-dir the kubelet's folder?"};
  if (!text) return text.error();
  auto record = read_kubelet_checkpoint(*text, options_.resource);
  if (!record) return record.error().in(where);
  return record;
}

Result<KubeletRecord> KubeletAllocations::fresh() {
  const auto before = file_identity(options_.checkpoint);
  offered_.tell_again();
  const auto end = Clock::now() + options_.patience;
  {
    const MutexLock lock(mutex_);
    for (;;) {
      const std::uint64_t seen = changes_;
      const auto now = file_identity(options_.checkpoint);
      if (now && now != before) break;
      if (Clock::now() >= end)
        return Error{Code::kUnavailable, "the kubelet has not written its checkpoint " +
                                             options_.checkpoint.string() +
                                             ": it does not know this plugin yet, or its disk is full"};
      const auto look = std::min(end, Clock::now() + kLook);
      if (changes_ == seen) changed_.wait_until(mutex_, look);
    }
  }
  return last();
}

Result<std::vector<ListedPod>> KubeletAllocations::pods() {
  grpc::ClientContext context;
  set_timeout(context, kListPatience);
  ::v1::ListPodResourcesResponse response;
  if (const grpc::Status status = lister_->List(&context, {}, &response); !status.ok()) {
    const bool is_away = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    return Error{is_away ? Code::kUnavailable : Code::kInternal, "the kubelet does not list its pods at " +
                                                                     options_.pod_resources.string() + ": " +
                                                                     status.error_message()};
  }
  std::vector<ListedPod> pods;
  for (const ::v1::PodResources& pod : response.pod_resources()) {
    ListedPod one = listed(pod, options_.resource);
    if (!one.units.empty()) pods.push_back(std::move(one));
  }
  return pods;
}

void KubeletAllocations::notice_change() {
  {
    const MutexLock lock(mutex_);
    ++changes_;
  }
  changed_.notify_all();
}

}  // namespace gpumem::kubernetes
