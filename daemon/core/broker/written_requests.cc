#include "daemon/core/broker/written_requests.h"

namespace gpumem::core {
namespace {

// Writes the decision down, so that the next broker knows of it before it is answered. If that fails, `undo`
// takes it back.
template <class T, class Undo>
Result<T> written_or_undone(Executor& executor, Result<T> decided, Undo undo) {
  if (!decided) return decided;
  if (auto written = executor.write_down(); !written) {
    undo(*decided);
    return written.error();
  }
  return decided;
}

}  // namespace

Result<SliceOpened> open_slice(Executor& executor, Broker& broker, SessionId session,
                               const OpenSlice& request, TimePoint now) {
  const auto slice = written_or_undone(
      executor, broker.open_slice(session, request),
      [&](const Slice& opened) { static_cast<void>(broker.close_slice(session, {opened.id}, now)); });
  if (!slice) return slice.error();
  return SliceOpened{slice->id, slice->limit, broker.policy().devices[slice->device].granularity};
}

Result<JobBegun> begin_job(Executor& executor, Broker& broker, SessionId session, const BeginJob& request,
                           TimePoint now) {
  return written_or_undone(executor, broker.begin_job(session, request, now),
                           [&](const JobBegun&) { broker.call_off_job(session, now); });
}

Result<Imported> import_handle(Executor& executor, Broker& broker, SessionId session,
                               const ImportHandle& request, TimePoint now) {
  if (auto marked = check(request); !marked) return marked.error();
  return written_or_undone(executor, broker.import_handle(session, request, now),
                           [&](const Imported& imported) {
                             static_cast<void>(broker.release_import(session, {imported.id}, now));
                           });
}

Result<RegionId> publish(Executor& executor, Broker& broker, SessionId session, const Publish& request,
                         TimePoint now) {
  auto done = written_or_undone(executor, broker.publish(session, request, now), [&](RegionId version) {
    static_cast<void>(broker.remove_region(session, {request.name, version.value}, now));
  });
  if (done && request.keep) executor.region_kept(request.leases);
  return done;
}

Result<MappedRegion> map_region(Executor& executor, Broker& broker, SessionId session,
                                const MapRegion& request, TimePoint now) {
  return written_or_undone(executor, broker.map_region(session, request, now),
                           [&](const MappedRegion& mapped) { broker.take_back(session, mapped, now); });
}

}  // namespace gpumem::core
