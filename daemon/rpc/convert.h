#pragma once
#include <grpcpp/support/status.h>

#include <string>

#include "daemon/core/denial.h"
#include "daemon/core/effects.h"
#include "daemon/core/views.h"
#include "gpumem/v1/broker.pb.h"

namespace gpumem::rpc {

// The core's types as messages. Nothing is decided here.

grpc::Status to_status(const Error& error);
v1::Denial to_proto(const core::Denial& denial);
v1::DeviceStatus to_proto(const core::DeviceView& view);
v1::TenantUsage to_proto(const core::TenantView& view, const std::string& device_uuid);
/// `now`  to turn the steady time of the session into a date.
v1::SessionInfo to_proto(const core::SessionView& view, core::TimePoint now);
void fill(v1::GrowResponse& response, const core::Grant& grant);

/// RFC 3339, UTC, in seconds.
std::string to_date(core::TimePoint time, core::TimePoint now);

}  // namespace gpumem::rpc
