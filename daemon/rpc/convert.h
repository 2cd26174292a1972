#pragma once
#include <grpcpp/support/status.h>

#include <string>
#include <vector>

#include "daemon/core/broker/executor.h"
#include "daemon/core/sessions/effects.h"
#include "daemon/core/sessions/views.h"
#include "daemon/core/words/denial.h"
#include "gpumem/v1/broker.pb.h"

namespace gpumem::rpc {

// The core's types as messages, and messages as its requests. Nothing is decided here.

core::Grow to_request(const v1::GrowRequest& request);
core::Return to_request(const v1::ReturnRequest& request);
core::BeginJob to_request(const v1::BeginJobRequest& request);
core::DeclareCharge to_request(const v1::ChargeRequest& request);
core::ReserveForJob to_request(const v1::ReserveForJobRequest& request);
core::ExportHandle to_request(const v1::ExportHandleRequest& request);
/// Errors  kInvalidArgument: a digest of another length.
Result<core::Publish> to_request(const v1::PublishRequest& request);
/// Errors  kInvalidArgument: it has another length than handles have.
Result<core::HandleBytes> to_handle(std::string_view bytes);

grpc::Status to_status(const Error& error);
v1::Denial to_proto(const core::Denial& denial);
v1::DeviceStatus to_proto(const core::DeviceView& view, core::TimePoint now);
v1::Account to_proto(const core::UsageView& view, const std::vector<std::string>& devices,
                     core::TimePoint now);
v1::TenantUsage to_proto(const core::TenantView& view, const std::string& device_uuid);
/// `now`  to turn the steady time of the session into a date.
v1::SessionInfo to_proto(const core::SessionView& view, const std::vector<std::string>& devices,
                         core::TimePoint now);
v1::JobInfo to_proto(const core::JobView& view, const std::vector<std::string>& devices, core::TimePoint now);
v1::SliceInfo to_proto(const core::SliceView& slice, const std::vector<std::string>& devices);
v1::RegionInfo to_proto(const core::RegionView& view, const std::vector<std::string>& devices,
                        core::TimePoint now);
void fill(v1::OpenSliceResponse& response, const core::SliceOpened& opened);
void fill(v1::GrowResponse& response, const core::Grant& grant);
void fill(v1::ExplainResponse& response, const core::Explanation& explanation,
          const std::vector<std::string>& devices, core::TimePoint now);
/// `devices`  their UUIDs.
v1::Standing to_proto(const core::Standing& standing, const std::vector<std::string>& devices,
                      core::TimePoint now);
v1::Event to_proto(const core::LoggedEvent& logged, const std::vector<std::string>& devices);

/// RFC 3339, UTC, in seconds.
std::string to_date(core::TimePoint time, core::TimePoint now);

}  // namespace gpumem::rpc
