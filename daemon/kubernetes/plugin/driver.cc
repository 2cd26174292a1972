#include "daemon/kubernetes/plugin/driver.h"

#include "base/log.h"

namespace gpumem::kubernetes {
namespace {

std::filesystem::path plugin_folder(const Driver::Options& options) {
  return options.kubelet_folder / "plugins" / options.name;
}

}  // namespace

Driver::Driver(const Options& options)
    : broker_(options.specs.runtime_folder / "api.sock"),
      server_(options.server),
      specs_(options.specs),
      claims_({.driver = options.name, .node = options.node, .folder = plugin_folder(options)}, server_,
              broker_, specs_),
      publisher_({.driver = options.name, .node = options.node}, server_) {}

Result<std::unique_ptr<Driver>> Driver::start(const Options& options) {
  std::error_code error;
  std::filesystem::create_directories(plugin_folder(options), error);
  if (error) return errno_error(error.value(), "cannot make " + plugin_folder(options).string());
  std::unique_ptr<Driver> driver(new Driver(options));
  if (auto recovered = driver->claims_.recover(); !recovered) return recovered.error();
  const auto publish = [one = driver.get()] { return one->publish(); };
  const auto refresh = [one = driver.get()] { return one->claims_.refresh_pods(); };
  const auto refresh_broker = [one = driver.get()] { return one->claims_.refresh_broker(); };
  driver->loop_ = std::make_unique<ReconcileLoop>(std::vector<ReconcileLoop::Task>{
      {"cannot publish the ResourceSlice", options.publish_period, publish},
      {"cannot keep the pods of claims up to date", options.refresh_period, refresh}});
  // On a thread of its own: a broker that was started anew is not to wait for the API server.
  driver->broker_loop_ = std::make_unique<ReconcileLoop>(std::vector<ReconcileLoop::Task>{
      {"cannot keep the broker's claims up to date", options.refresh_period, refresh_broker}});
  auto plugin = PluginServer::start({.driver = options.name,
                                     .folder = plugin_folder(options),
                                     .registry_folder = options.kubelet_folder / "plugins_registry",
                                     .instance = options.instance,
                                     .device_kind = options.device_kind,
                                     .health = {.pool = options.node, .period = options.refresh_period}},
                                    driver->claims_, driver->broker_,
                                    [one = driver.get()](bool answer) { one->take_answer(answer); });
  if (!plugin) return plugin.error();
  driver->plugin_ = std::move(*plugin);
  const auto keep_sockets = [one = driver.get()] { return one->keep_sockets(); };
  driver->sockets_loop_ = std::make_unique<ReconcileLoop>(std::vector<ReconcileLoop::Task>{
      {"cannot listen for the kubelet", options.refresh_period, keep_sockets}});
  return driver;
}

Driver::~Driver() {
  for (const auto& loop : {loop_.get(), broker_loop_.get(), sockets_loop_.get()})
    if (loop != nullptr) loop->stop();
  server_.stop();  // nobody waits for it any more
  sockets_loop_.reset();
  plugin_.reset();
  loop_.reset();
  broker_loop_.reset();
}

void Driver::take_answer(bool is_registered) {
  registration_ = is_registered ? Registration::kDone : Registration::kRefused;
  loop_->wake();
  broker_loop_->wake();
}

// Somebody may make the kubelet's folders anew. Then it does not find the driver.
Result<void> Driver::keep_sockets() {
  if (plugin_->can_be_found()) return {};
  spdlog::warn("a socket for the kubelet is gone, and is made anew");
  registration_ = Registration::kNotAnswered;
  return plugin_->listen_anew();
}

Result<void> Driver::publish() {
  const Registration registration = registration_;
  // The slice that an earlier process published stays until the kubelet has answered.
  if (registration == Registration::kNotAnswered) return {};
  if (registration == Registration::kRefused) return publisher_.reconcile({});
  auto devices = broker_.devices();
  // The published slice stays: a restarted broker has the same devices.
  if (!devices) return devices.error();
  return publisher_.reconcile(*devices);
}

}  // namespace gpumem::kubernetes
