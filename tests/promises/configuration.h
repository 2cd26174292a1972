#pragma once
#include <random>

#include "daemon/core/words/policy.h"

namespace gpumem::core::promises {

/// A policy that holds (check()): devices of different sizes, users 1 to `users`, some in groups, with
/// quotas, escalations, deadlines and rules at random.
struct Configuration {
  Policy policy;
  std::uint32_t users = 0;
};
Configuration random_configuration(std::mt19937_64& random);

}  // namespace gpumem::core::promises
