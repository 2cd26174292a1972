#pragma once
#include <string>
#include <vector>

#include "daemon/core/broker/executor.h"
#include "proto/lane/frames.h"

namespace gpumem::lane {

// Frames in the core's words and back. Nothing is decided here.

core::Grow to_request(const Grow& body);
core::Return to_request(const Return& body);
core::BeginJob to_request(const BeginJob& body);
core::ReserveForJob to_request(const ReserveForJob& body, std::string device);
core::AnnounceContext to_request(const AnnounceContext& body, std::string device);
core::ExportHandle to_request(const ExportHandle& body);
/// `number`  of the request: it is made again under it. Errors  kInvalidArgument: neither 0 nor 1.
Result<core::Publish> to_request(const Publish& body, std::uint64_t number);
/// `device`  its UUID; empty: any.
core::MapRegion to_request(const MapRegion& body, std::string device);
core::MapOrReserve to_request(const MapOrReserve& body, std::uint64_t number);
core::RemoveRegion to_request(const RemoveRegion& body, std::uint64_t number);

/// With the figures, if it is a denial: for the caller, so without other tenants' names.
Failed to_body(const core::GrowFailure& failure);
SliceOpened to_body(const core::SliceOpened& opened);
HandleExported to_body(const core::HandleExported& exported);
inline Published to_body(core::RegionId version) { return {version.value}; }
inline JobBegun to_body(const core::JobBegun& begun) { return {begun.job.value}; }
inline JobDescribed to_body(const core::JobAccount& account) {
  return {account.peak.count, core::to_milliseconds(account.waited), account.denied};
}
Imported to_body(const core::Imported& imported);
RegionMapped to_body(const core::MappedRegion& region);
NameReserved to_body(const core::NameReserved& reserved);
/// The leases from `first` on, as many as one frame holds.
Granted to_body(const core::Grant& grant, std::size_t first);

/// The slices from `first` on, as far as they fit into one frame.
Described to_body(const core::SessionView& view, std::size_t first);
Explained to_body(const core::Explanation& explanation, core::TimePoint now);
/// The UUID of the device at a place of the Welcome; a name that no device has for places that there are not.
std::string device_at(const core::Broker& broker, std::uint64_t place);
/// Of the steady clock, which is CLOCK_MONOTONIC.
std::uint64_t to_nanoseconds(core::TimePoint time);

}  // namespace gpumem::lane
