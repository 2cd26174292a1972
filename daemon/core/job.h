#pragma once
#include <vector>

#include "daemon/core/pool.h"
#include "daemon/core/types.h"

namespace gpumem::core {

/// Work for the driver of one device, done step by step in order: a step destroys, then creates.
struct Job {
  enum class Turn {
    kNow,      ///< a request waits for it, or nothing else is to be done
    kSoon,     ///< creates warm extents from destroyed ones; no request waits for them
    kInOrder,  ///< all other jobs
  };
  struct Step {
    std::vector<ExtentId> destroy;
    std::vector<Extent> create;
  };
  JobId id;
  DeviceIndex device = 0;
  Turn turn = Turn::kInOrder;
  std::vector<Step> steps;
};

/// The result of a job. All of `destroy` was destroyed, and all extents but `failed` were created.
struct JobResult {
  JobId id;
  DeviceIndex device = 0;
  std::vector<ExtentId> failed;
};

}  // namespace gpumem::core
