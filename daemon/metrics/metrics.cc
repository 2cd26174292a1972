#include "daemon/metrics/metrics.h"

#include <utility>

#include "daemon/metrics/render.h"
#include "daemon/metrics/scrapes.h"

namespace gpumem::metrics {

Metrics::Metrics(core::Executor& executor, Options options)
    : sampler_(executor, std::move(options.info)),
      server_(serving({.sockets = std::move(options.sockets),
                       .text = [this](Exposition::Then then) { exposition_.request(std::move(then)); },
                       .is_reserved = std::move(options.is_reserved),
                       .is_of_pod = std::move(options.is_of_pod)})),
      exposition_([this]() -> std::optional<std::string> {
        const auto snapshot = sampler_.sample();
        if (!snapshot) return std::nullopt;
        return render(*snapshot);
      }) {
  server_.start();
}

Metrics::~Metrics() { stop(); }

}  // namespace gpumem::metrics
