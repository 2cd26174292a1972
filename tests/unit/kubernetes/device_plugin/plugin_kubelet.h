#pragma once
#include <grpcpp/server.h>

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kubelet/device_plugin.grpc.pb.h"
#include "kubelet/pod_resources.grpc.pb.h"

namespace gpumem::kubernetes::test {

struct PodName {
  std::string uid;
  std::string space;
  std::string name;
};

enum class ContainerKind { kApp, kInit };

/// The kubelet of Kubernetes 1.36 as far as device plugins see it (its package cm/devicemanager): it removes
/// all sockets when it starts, writes its checkpoint after each list and each allocation, and frees what
/// ended pods had when somebody asks for its list of pods or for units.
class PluginKubelet {
 public:
  /// `folder`  of the kubelet. Does not start.
  explicit PluginKubelet(const std::filesystem::path& folder);
  ~PluginKubelet();

  void start();
  /// Forgets what plugins there are, and keeps what it has allocated, as the real one does by its checkpoint.
  void stop();

  int registrations();
  ::v1beta1::RegisterRequest registration();   ///< the last
  ::v1beta1::DevicePluginOptions options();    ///< that the plugin has answered
  std::map<std::string, std::string> units();  ///< as last told: name and health
  int healthy();

  /// Admits a pod's container that asks for `size` units; its pod's containers come one after the other.
  grpc::Status admit(const PodName& pod, const std::string& container, int size,
                     ContainerKind kind = ContainerKind::kApp);
  /// Has the plugin prepare the start of a container that was admitted.
  grpc::Status start_container(const PodName& pod, const std::string& container);
  grpc::Status pre_start(const std::vector<std::string>& units);
  grpc::Status allocate(const std::vector<std::string>& units, ::v1beta1::AllocateResponse& response);

  ::v1beta1::ContainerAllocateResponse answer(const PodName& pod, const std::string& container);
  std::set<std::string> units_of(const PodName& pod, const std::string& container);
  /// The pod has ended.
  void end(const PodName& pod);

  /// From now on `text` is in the checkpoint, whatever is allocated; `times` it is written. Negative: for
  /// ever.
  void write_instead(const std::string& text, int times);
  /// From now on it cannot write.
  void set_disk_full(bool full);
  /// From now on it lists `pod` with the units of all others, too.
  void list_all_for(const PodName& pod);
  void set_listing(bool listing);  ///< whether the service PodResources answers
  int checkpoints();               ///< how often it has written

 private:
  class Registration;
  class Lister;
  struct Container {
    std::string resource;
    ContainerKind kind;
    std::set<std::string> units;
    ::v1beta1::ContainerAllocateResponse answer;
  };
  struct Pod {
    PodName name;
    std::map<std::string, Container> containers;
  };
  struct Plugin;

  grpc::Status add_plugin(const ::v1beta1::RegisterRequest& request);
  void hear(const std::shared_ptr<Plugin>& plugin);
  void free_ended();        // with mutex_
  void write_checkpoint();  // with mutex_
  std::set<std::string> units_in_use();
  std::shared_ptr<Plugin> plugin();

  std::filesystem::path folder_;
  std::mutex mutex_;
  std::map<std::string, Pod> pods_;
  std::set<std::string> ended_;
  std::map<std::string, std::string> units_;
  ::v1beta1::RegisterRequest registration_;
  ::v1beta1::DevicePluginOptions options_;
  int registrations_ = 0;
  int checkpoints_ = 0;
  std::string instead_;
  int times_instead_ = 0;
  bool disk_full_ = false;
  bool listing_ = true;
  std::string lists_all_;
  std::vector<std::shared_ptr<Plugin>> plugins_;
  std::unique_ptr<Registration> registration_service_;
  std::unique_ptr<Lister> lister_;
  std::unique_ptr<grpc::Server> registration_server_;
  std::unique_ptr<grpc::Server> lister_server_;
};

}  // namespace gpumem::kubernetes::test
