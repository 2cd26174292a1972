#include "tests/unit/kubernetes/device_plugin/plugin_kubelet.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <algorithm>

#include "daemon/kubernetes/http/api_values.h"
#include "tests/support/temporary_folder.h"

namespace gpumem::kubernetes::test {
namespace {

constexpr int kSeconds = 30;  // KubeletPreStartContainerRPCTimeoutInSecs

void limit_call(grpc::ClientContext& context) {
  context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(kSeconds, GPR_TIMESPAN)));
}

std::unique_ptr<grpc::Server> serve(const std::filesystem::path& socket, grpc::Service* service) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket.string(), grpc::InsecureServerCredentials());
  builder.RegisterService(service);
  return builder.BuildAndStart();
}

void remove_sockets(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_socket()) std::filesystem::remove(entry.path());
}

grpc::Status gone() { return {grpc::StatusCode::NOT_FOUND, "no plugin has registered"}; }

}  // namespace

struct PluginKubelet::Plugin {
  std::unique_ptr<::v1beta1::DevicePlugin::Stub> stub;
  grpc::ClientContext list;
  std::thread thread;
};

class PluginKubelet::Registration final : public ::v1beta1::Registration::Service {
 public:
  explicit Registration(PluginKubelet& kubelet) : kubelet_(kubelet) {}
  grpc::Status Register(grpc::ServerContext*, const ::v1beta1::RegisterRequest* request,
                        ::v1beta1::Empty*) override {
    return kubelet_.add_plugin(*request);
  }

 private:
  PluginKubelet& kubelet_;
};

class PluginKubelet::Lister final : public ::v1::PodResourcesLister::Service {
 public:
  explicit Lister(PluginKubelet& kubelet) : kubelet_(kubelet) {}
  grpc::Status List(grpc::ServerContext*, const ::v1::ListPodResourcesRequest*,
                    ::v1::ListPodResourcesResponse* response) override {
    const std::lock_guard lock(kubelet_.mutex_);
    if (!kubelet_.listing_) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "rejected by rate limit"};
    kubelet_.free_ended();
    const std::set<std::string> all = kubelet_.units_in_use();
    for (const auto& [uid, pod] : kubelet_.pods_) {
      auto* one = response->add_pod_resources();
      one->set_name(pod.name.name);
      one->set_namespace_(pod.name.space);
      for (const auto& [name, container] : pod.containers) {
        if (container.kind == ContainerKind::kInit) continue;
        auto* listed = one->add_containers();
        listed->set_name(name);
        auto* devices = listed->add_devices();
        devices->set_resource_name(container.resource);
        for (const std::string& unit : uid == kubelet_.lists_all_ ? all : container.units)
          devices->add_device_ids(unit);
        auto* other = listed->add_devices();
        other->set_resource_name("example.com/other");
        other->add_device_ids("0");
      }
    }
    return grpc::Status::OK;
  }

 private:
  PluginKubelet& kubelet_;
};

PluginKubelet::PluginKubelet(const std::filesystem::path& folder)
    : folder_(folder),
      registration_service_(std::make_unique<Registration>(*this)),
      lister_(std::make_unique<Lister>(*this)) {
  std::filesystem::create_directories(folder_ / "device-plugins");
  std::filesystem::create_directories(folder_ / "pod-resources");
}

PluginKubelet::~PluginKubelet() { stop(); }

void PluginKubelet::start() {
  remove_sockets(folder_ / "device-plugins");
  lister_server_ = serve(folder_ / "pod-resources/kubelet.sock", lister_.get());
  registration_server_ = serve(folder_ / "device-plugins/kubelet.sock", registration_service_.get());
}

void PluginKubelet::stop() {
  if (registration_server_) registration_server_->Shutdown();
  if (lister_server_) lister_server_->Shutdown();
  registration_server_.reset();
  lister_server_.reset();
  std::vector<std::shared_ptr<Plugin>> plugins;
  {
    const std::lock_guard lock(mutex_);
    plugins.swap(plugins_);
    units_.clear();
  }
  for (const auto& one : plugins) {
    one->list.TryCancel();
    one->thread.join();
  }
}

grpc::Status PluginKubelet::add_plugin(const ::v1beta1::RegisterRequest& request) {
  auto plugin = std::make_shared<Plugin>();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  plugin->stub = ::v1beta1::DevicePlugin::NewStub(
      grpc::CreateCustomChannel("unix:" + (folder_ / "device-plugins" / request.endpoint()).string(),
                                grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  limit_call(context);
  ::v1beta1::DevicePluginOptions options;
  if (auto status = plugin->stub->GetDevicePluginOptions(&context, {}, &options); !status.ok()) return status;
  const std::lock_guard lock(mutex_);
  registration_ = request;
  options_ = options;
  ++registrations_;
  plugin->thread = std::thread([this, plugin] { hear(plugin); });
  plugins_.push_back(plugin);
  return grpc::Status::OK;
}

void PluginKubelet::hear(const std::shared_ptr<Plugin>& plugin) {
  const auto reader = plugin->stub->ListAndWatch(&plugin->list, {});
  ::v1beta1::ListAndWatchResponse list;
  while (reader->Read(&list)) {
    const std::lock_guard lock(mutex_);
    units_.clear();
    for (const auto& unit : list.devices()) units_[unit.id()] = unit.health();
    write_checkpoint();
  }
  reader->Finish();
  const std::lock_guard lock(mutex_);
  if (plugins_.empty() || plugins_.back() != plugin) return;
  for (auto& [id, health] : units_) health = "Unhealthy";
}

std::shared_ptr<PluginKubelet::Plugin> PluginKubelet::plugin() {
  const std::lock_guard lock(mutex_);
  return plugins_.empty() ? nullptr : plugins_.back();
}

void PluginKubelet::free_ended() {
  for (const std::string& uid : ended_) pods_.erase(uid);
  ended_.clear();
}

std::set<std::string> PluginKubelet::units_in_use() {
  std::set<std::string> used;
  for (const auto& [uid, pod] : pods_)
    for (const auto& [name, container] : pod.containers)
      used.insert(container.units.begin(), container.units.end());
  return used;
}

// Under a temporary name first.
void PluginKubelet::write_checkpoint() {
  if (disk_full_) return;
  Json entries = nullptr;  // as Go writes a list that nothing was put in
  for (const auto& [uid, pod] : pods_) {
    for (const auto& [name, container] : pod.containers)
      entries.push_back({{"PodUID", uid},
                         {"ContainerName", name},
                         {"ResourceName", container.resource},
                         {"DeviceIDs", {{"-1", container.units}}},
                         {"AllocResp", "EgA="}});
  }
  Json healthy = Json::array();
  for (const auto& [id, health] : units_)
    if (health == "Healthy") healthy.push_back(id);
  const Json data = {{"PodDeviceEntries", entries},
                     {"RegisteredDevices", {{registration_.resource_name(), healthy}}}};
  std::string text = Json{{"Data", data}, {"Checksum", 1234}}.dump();
  if (times_instead_ != 0) {
    text = instead_;
    --times_instead_;
  }
  const std::filesystem::path file = folder_ / "device-plugins/kubelet_internal_checkpoint";
  const std::filesystem::path fresh = folder_ / "device-plugins/.1234567890";
  gpumem::test::write_file(fresh, text);
  std::filesystem::rename(fresh, file);
  ++checkpoints_;
}

grpc::Status PluginKubelet::allocate(const std::vector<std::string>& units,
                                     ::v1beta1::AllocateResponse& response) {
  const auto at = plugin();
  if (at == nullptr) return gone();
  grpc::ClientContext context;
  limit_call(context);
  ::v1beta1::AllocateRequest request;
  auto* container = request.add_container_requests();
  for (const std::string& unit : units) container->add_devices_ids(unit);
  return at->stub->Allocate(&context, request, &response);
}

grpc::Status PluginKubelet::admit(const PodName& pod, const std::string& container, int size,
                                  ContainerKind kind) {
  const auto at = plugin();
  if (at == nullptr) return gone();
  ::v1beta1::PreferredAllocationRequest request;
  auto* wish = request.add_container_requests();
  wish->set_allocation_size(size);
  {
    const std::lock_guard lock(mutex_);
    free_ended();
    std::set<std::string> reusable;
    const auto known = pods_.find(pod.uid);
    for (const auto& [name, one] : known == pods_.end() ? Pod().containers : known->second.containers)
      if (one.kind == ContainerKind::kInit) reusable.insert(one.units.begin(), one.units.end());
    const std::set<std::string> used = units_in_use();
    for (const auto& [id, health] : units_)
      if (health == "Healthy" && (used.count(id) == 0 || reusable.count(id) != 0))
        wish->add_available_deviceids(id);
    for (const std::string& id : reusable)
      if (wish->must_include_deviceids_size() < size) wish->add_must_include_deviceids(id);
  }
  grpc::ClientContext context;
  limit_call(context);
  ::v1beta1::PreferredAllocationResponse preferred;
  if (auto status = at->stub->GetPreferredAllocation(&context, request, &preferred); !status.ok())
    return status;
  const auto& ids = preferred.container_responses(0).deviceids();
  if (ids.size() != size) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too few units"};
  ::v1beta1::AllocateResponse response;
  if (auto status = allocate({ids.begin(), ids.end()}, response); !status.ok()) return status;
  const std::lock_guard lock(mutex_);
  pods_[pod.uid].name = pod;
  pods_[pod.uid].containers[container] = {
      registration_.resource_name(), kind, {ids.begin(), ids.end()}, response.container_responses(0)};
  write_checkpoint();
  return grpc::Status::OK;
}

grpc::Status PluginKubelet::pre_start(const std::vector<std::string>& units) {
  const auto at = plugin();
  if (at == nullptr) return gone();
  grpc::ClientContext context;
  limit_call(context);
  ::v1beta1::PreStartContainerRequest request;
  for (const std::string& unit : units) request.add_devices_ids(unit);
  ::v1beta1::PreStartContainerResponse response;
  return at->stub->PreStartContainer(&context, request, &response);
}

grpc::Status PluginKubelet::start_container(const PodName& pod, const std::string& container) {
  const std::set<std::string> units = units_of(pod, container);
  return pre_start({units.begin(), units.end()});
}

::v1beta1::ContainerAllocateResponse PluginKubelet::answer(const PodName& pod, const std::string& container) {
  const std::lock_guard lock(mutex_);
  return pods_.at(pod.uid).containers.at(container).answer;
}

std::set<std::string> PluginKubelet::units_of(const PodName& pod, const std::string& container) {
  const std::lock_guard lock(mutex_);
  return pods_.at(pod.uid).containers.at(container).units;
}

void PluginKubelet::end(const PodName& pod) {
  const std::lock_guard lock(mutex_);
  ended_.insert(pod.uid);
}

void PluginKubelet::write_instead(const std::string& text, int times) {
  const std::lock_guard lock(mutex_);
  instead_ = text;
  times_instead_ = times;
}

void PluginKubelet::set_disk_full(bool full) {
  const std::lock_guard lock(mutex_);
  disk_full_ = full;
}

void PluginKubelet::list_all_for(const PodName& pod) {
  const std::lock_guard lock(mutex_);
  lists_all_ = pod.uid;
}

void PluginKubelet::set_listing(bool listing) {
  const std::lock_guard lock(mutex_);
  listing_ = listing;
}

int PluginKubelet::checkpoints() {
  const std::lock_guard lock(mutex_);
  return checkpoints_;
}

int PluginKubelet::registrations() {
  const std::lock_guard lock(mutex_);
  return registrations_;
}

::v1beta1::RegisterRequest PluginKubelet::registration() {
  const std::lock_guard lock(mutex_);
  return registration_;
}

::v1beta1::DevicePluginOptions PluginKubelet::options() {
  const std::lock_guard lock(mutex_);
  return options_;
}

std::map<std::string, std::string> PluginKubelet::units() {
  const std::lock_guard lock(mutex_);
  return units_;
}

int PluginKubelet::healthy() {
  const auto told = units();
  return static_cast<int>(
      std::count_if(told.begin(), told.end(), [](const auto& one) { return one.second == "Healthy"; }));
}

}  // namespace gpumem::kubernetes::test
