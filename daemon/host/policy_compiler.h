#pragma once
#include <vector>

#include "cuda/driver.h"
#include "daemon/core/policy.h"
#include "daemon/host/config.h"

namespace gpumem::host {

/// What the driver knows of a device, and how much of it can be reserved now.
struct DeviceFacts {
  cuda::Device device;
  Bytes obtainable;  ///< total less what others use already; total where that is not known
};

/// Turns a configuration into the policy for the machine's devices: amounts into bytes, names of users
/// and groups into numbers. The policy is checked.
/// Errors  kInvalidArgument (unknown user, group or device; more reserved than there is; guarantees that
///         cannot hold together).
Result<core::Policy> compile_policy(const Config& config, const std::vector<DeviceFacts>& devices);

}  // namespace gpumem::host
