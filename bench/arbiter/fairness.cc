#include "bench/arbiter/fairness.h"

#include <algorithm>

namespace gpumem::bench {
namespace {

double jain(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double one : values) {
    sum += one;
    squares += one * one;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(values.size()) * squares) : 0;
}

}  // namespace

void Fairness::sample(DeviceIndex device, std::span<const Standing> standings) {
  claims_.clear();
  auto rest = static_cast<double>(trace_.options.pool.count);
  double weights = 0;
  for (const Standing& one : standings) {
    const SimulatedTenant& tenant = trace_.tenants[one.tenant];
    const Bytes guarantee = tenant.home == device ? tenant.guarantee : Bytes{};
    rest -= static_cast<double>(std::min(one.demand, guarantee).count);
    if (one.demand <= guarantee) continue;
    claims_.push_back({one.tenant, static_cast<double>(one.demand.minus(guarantee).count),
                       static_cast<double>(one.held.minus(guarantee).count),
                       static_cast<double>(tenant.weight)});
    weights += claims_.back().weight;
  }
  // Whoever asks for the least by its weight is served first, and leaves the more to the others.
  std::ranges::sort(claims_,
                    [](const Claim& a, const Claim& b) { return a.demand * b.weight < b.demand * a.weight; });
  for (const Claim& one : claims_) {
    const double part = std::min(one.demand, rest * one.weight / weights);
    rest -= part;
    weights -= one.weight;
    sums_[one.tenant].entitled += part;
    sums_[one.tenant].held += one.held;
  }
}

Fairness::Result Fairness::result() const {
  std::vector<double> services, capped;
  for (const Sums& one : sums_) {
    if (one.entitled <= 0) continue;
    services.push_back(one.held / one.entitled);
    capped.push_back(std::min(services.back(), 1.0));
  }
  if (services.empty()) return {};
  Result result{jain(services), jain(capped), 0, 0, services.size()};
  std::ranges::sort(services);
  result.lowest_tenth = services[services.size() / 10];
  result.median = services[services.size() / 2];
  return result;
}

}  // namespace gpumem::bench
