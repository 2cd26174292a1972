#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/http/http_server.h"
#include "base/system/unique_fd.h"
#include "daemon/core/broker/executor.h"
#include "daemon/metrics/exposition.h"
#include "daemon/metrics/sampler.h"

namespace gpumem::metrics {

/// Counts what happens from now on, and serves it as OpenMetrics text: docs/metrics.md.
class Metrics {
 public:
  struct Options {
    BrokerInfo info;
    std::vector<UniqueFd> sockets;  ///< listening and non-blocking
    /// Whether a descriptor, just opened, is one that is kept for others.
    std::function<bool(int)> is_reserved = [](int) { return false; };
    /// Whether a connection is of a process in a pod, which is told nothing of others.
    std::function<bool(int)> is_of_pod = [](int) { return false; };
  };

  /// `executor`  outlives it, and is open until it is gone.
  Metrics(core::Executor& executor, Options options);
  /// As stop(), and waits for a snapshot that is being taken.
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Cuts every connection; takes no more.
  void stop() { server_.stop(); }

 private:
  Sampler sampler_;
  http::HttpServer server_;
  Exposition exposition_;  ///< the first to go: it calls the server
};

}  // namespace gpumem::metrics
