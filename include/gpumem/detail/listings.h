#pragma once
#include <vector>

#include "gpumem/detail/c.h"
#include "gpumem/statistics.h"

// C structs of listings as their C++ types.

namespace gpumem::detail {

inline DeviceUsage usage_of(const gpumem_usage& usage) {
  DeviceUsage device{usage.device,  {usage.pool},    {usage.free},      {usage.guarantee},
                     {usage.limit}, {usage.charged}, {usage.available}, {usage.pressure}};
  if (usage.pressure != 0) device.pressure_deadline = time_point(usage.pressure_deadline_ns);
  return device;
}

inline SizeClassStatistics size_class_of(const gpumem_size_class& known) {
  return {{known.size}, known.in_use, known.allocations, known.cache_hits};
}

inline BlockInfo block_of(const gpumem_block& known) {
  return {known.address, {known.bytes}, {known.placed}, known.stream, std::chrono::milliseconds(known.age_ms),
          known.tag};
}

inline AllocatorStatistics statistics_of(const gpumem_statistics& known,
                                         std::vector<SizeClassStatistics> classes) {
  return {{known.in_use},      {known.placed},      {known.cached},      {known.committed},
          {known.returnable},  {known.reserved},    {known.peak_in_use}, {known.peak_committed},
          known.fragmentation, known.allocations,   known.cache_hits,    known.growths,
          known.refused,       known.moved_extents, known.given_back,    std::move(classes)};
}

}  // namespace gpumem::detail
