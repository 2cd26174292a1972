#pragma once
#include "daemon/core/broker/executor.h"

// Requests that hand out memory, or names for it. The outcome is written down before it is answered, or
// undone: kUnavailable. Inside work on the core's thread. Other errors  as those of Broker.

namespace gpumem::core {

Result<SliceOpened> open_slice(Executor& executor, Broker& broker, SessionId session,
                               const OpenSlice& request, TimePoint now);
/// Errors  kInvalidArgument, too: no handle of ours.
Result<JobBegun> begin_job(Executor& executor, Broker& broker, SessionId session, const BeginJob& request,
                           TimePoint now);
Result<Imported> import_handle(Executor& executor, Broker& broker, SessionId session,
                               const ImportHandle& request, TimePoint now);
Result<RegionId> publish(Executor& executor, Broker& broker, SessionId session, const Publish& request,
                         TimePoint now);
Result<MappedRegion> map_region(Executor& executor, Broker& broker, SessionId session,
                                const MapRegion& request, TimePoint now);

}  // namespace gpumem::core
