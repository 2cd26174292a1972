#include "daemon/monitoring.h"

#include <utility>
#include <vector>

#include "base/log.h"
#include "daemon/host/descriptor_budget.h"
#include "daemon/host/tcp_port.h"
#include "gpumem/bytes.h"

namespace gpumem {
namespace {

void add_port(const std::string& listen, std::vector<UniqueFd>& sockets) {
  if (listen.empty()) return;
  auto port = host::listen_on_tcp(listen);
  if (!port) return spdlog::error("metrics are not served on {}: {}", listen, port.error().message);
  spdlog::info("metrics on http://{}/metrics, for whoever reaches it", port->where);
  sockets.push_back(std::move(port->fd));
}

}  // namespace

std::string status_line(const std::vector<core::DeviceView>& devices) {
  Bytes pool, charged;
  std::size_t waiting = 0;
  for (const core::DeviceView& device : devices) {
    pool += device.policy.pool;
    charged += device.charges.total();
    waiting += device.waiting;
  }
  return "lends " + to_string(pool) + " of " + std::to_string(devices.size()) +
         (devices.size() == 1 ? " GPU; " : " GPUs; ") + to_string(charged) + " charged, " +
         std::to_string(waiting) + (waiting == 1 ? " request waits" : " requests wait");
}

Result<std::unique_ptr<metrics::Metrics>> start_metrics(core::Executor& executor, host::RuntimeFolder& folder,
                                                        const host::Config& config, metrics::BrokerInfo info,
                                                        const host::KernelFeatures& kernel) {
  const char* const key = config.metrics.group.empty() ? "admin_group" : "[metrics] group";
  const auto gid = host::resolve_group(metrics_group(config), key);
  if (!gid) return gid.error();
  std::vector<UniqueFd> sockets;
  if (auto socket = folder.listen_on_metrics(*gid, kernel))
    sockets.push_back(std::move(socket->fd));
  else
    spdlog::error("metrics are not served: {}", socket.error().message);
  add_port(config.metrics.listen, sockets);
  const auto is_reserved = [budget = host::DescriptorBudget::of_process()](int fd) {
    return budget.is_reserved(fd, true);
  };
  return std::make_unique<metrics::Metrics>(
      executor, metrics::Metrics::Options{
                    .info = std::move(info), .sockets = std::move(sockets), .is_reserved = is_reserved});
}

}  // namespace gpumem
