#include "daemon/kubernetes/device_plugin/device_plugin.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/thread_guards.h"
#include "daemon/kubernetes/http/api_values.h"
#include "daemon/kubernetes/plugin/unix_server.h"

namespace gpumem::kubernetes {
namespace {

constexpr std::uint32_t kChanges = IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_ONLYDIR;

// What has changed is looked up by whoever is called.
void drain(int events) {
  std::array<char, 4096> buffer;
  while (::read(events, buffer.data(), buffer.size()) > 0) {
  }
}

constexpr Bytes kUnitStep = mebibytes(2);  // in which the broker lends

std::filesystem::path plugins_folder(const DevicePlugin::Options& options) {
  return options.kubelet_folder / "device-plugins";
}

KubeletAllocations::Options allocations_of(const DevicePlugin::Options& options) {
  return {.resource = resource_name(options.domain, options.unit),
          .checkpoint = plugins_folder(options) / "kubelet_internal_checkpoint",
          .pod_resources = options.kubelet_folder / "pod-resources/kubelet.sock",
          .patience = options.patience};
}

}  // namespace

Result<std::unique_ptr<FolderWatch>> FolderWatch::start(const std::filesystem::path& folder,
                                                        std::function<void()> on_change) {
  UniqueFd events(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  if (!events.valid() || !stop.valid() || ::inotify_add_watch(events.get(), folder.c_str(), kChanges) < 0)
    return errno_error(errno, "cannot watch " + folder.string());
  return std::unique_ptr<FolderWatch>(
      new FolderWatch(std::move(events), std::move(stop), std::move(on_change)));
}

FolderWatch::FolderWatch(UniqueFd events, UniqueFd stop, std::function<void()> on_change)
    : events_(std::move(events)), stop_(std::move(stop)), on_change_(std::move(on_change)) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { loop(); });
}

FolderWatch::~FolderWatch() {
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

void FolderWatch::loop() {
  std::array<pollfd, 2> waited{{{events_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
  for (;;) {
    if (::poll(waited.data(), waited.size(), -1) < 0 && errno != EINTR) return;
    if (waited[1].revents != 0) return;
    if (waited[0].revents == 0) continue;
    drain(events_.get());
    on_change_();
  }
}

DevicePlugin::DevicePlugin(const Options& options)
    : broker_(options.specs.runtime_folder / "api.sock"),
      specs_(options.specs),
      offered_(options.unit),
      kubelet_(allocations_of(options), offered_),
      claims_(options.unit, kubelet_, broker_),
      service_(options.service, offered_, claims_, specs_),
      link_({.folder = plugins_folder(options), .resource = resource_name(options.domain, options.unit)},
            offered_, service_) {}

Result<std::unique_ptr<DevicePlugin>> DevicePlugin::start(const Options& options) {
  if (options.unit.is_zero() || options.unit.count % kUnitStep.count != 0)
    return Error{Code::kInvalidArgument, "a unit of " + quantity_text(options.unit) +
                                             " cannot be lent: use a multiple of " +
                                             quantity_text(kUnitStep)};
  std::error_code error;
  std::filesystem::create_directories(plugins_folder(options), error);
  if (error) return errno_error(error.value(), "cannot make " + plugins_folder(options).string());
  std::unique_ptr<DevicePlugin> made(new DevicePlugin(options));
  DevicePlugin* plugin = made.get();
  if (auto checked = check_socket_path(plugin->link_.socket()); !checked) return checked.error();
  if (auto written = plugin->service_.write_specification(); !written) return written.error();
  plugin->link_loop_ = std::make_unique<ReconcileLoop>(
      std::vector<ReconcileLoop::Task>{{"cannot learn the broker's devices", options.refresh_period,
                                        [plugin] { return plugin->refresh_devices(); }},
                                       {"cannot register with the kubelet", options.refresh_period,
                                        [plugin] { return plugin->link_.keep(); }}});
  // On a thread of its own: it waits for the kubelet, which may have to be registered with first.
  plugin->claims_loop_ = std::make_unique<ReconcileLoop>(
      std::vector<ReconcileLoop::Task>{{"cannot keep the broker's claims up to date", options.refresh_period,
                                        [plugin] { return plugin->claims_.reconcile(); }}});
  auto watch = FolderWatch::start(plugins_folder(options), [plugin] {
    plugin->kubelet_.notice_change();
    plugin->link_loop_->wake();
  });
  if (!watch) return watch.error();
  plugin->watch_ = std::move(*watch);
  return made;
}

DevicePlugin::~DevicePlugin() {
  watch_.reset();
  for (const auto& loop : {link_loop_.get(), claims_loop_.get()})
    if (loop != nullptr) loop->stop();
  link_loop_.reset();
  claims_loop_.reset();
}

Result<void> DevicePlugin::refresh_devices() {
  auto devices = broker_.devices();
  if (!devices) {
    offered_.set_away();
    return devices.error();
  }
  return offered_.set_lent(*devices);
}

}  // namespace gpumem::kubernetes
