#include "daemon/core/broker.h"

// Events about memory that several sessions use.

namespace gpumem::core {

Result<RegionId> Broker::publish(SessionId session, SliceId slice, std::span<const LeaseId> leases,
                                 RegionTerms terms, TimePoint now) {
  auto result = sharer_.publish(session, slice, leases, std::move(terms), now);
  serve(now);
  return result;
}

Result<MappedRegion> Broker::map_region(SessionId session, const MapTerms& terms, TimePoint now) {
  auto result = sharer_.map_region(session, terms, now);
  settle(now);
  return result;
}

Result<Imported> Broker::import_handle(SessionId session, const HandleBytes& bytes, TimePoint now) {
  auto result = sharer_.import_handle(session, bytes, now);
  settle(now);
  return result;
}

Result<void> Broker::release_reservation(SessionId session, ReservationId reservation, TimePoint now) {
  auto result = sharer_.release_reservation(session, reservation);
  serve(now);
  return result;
}

void Broker::call_off_reservation(SessionId session, std::uint64_t number, TimePoint now) {
  sharer_.call_off_reservation(session, number);
  serve(now);
}

void Broker::map_or_wait(RequestId id, SessionId session, MapTerms terms, Duration wait, TimePoint now) {
  sharer_.map_or_wait(id, session, std::move(terms), wait, now);
  settle(now);
}

void Broker::take_back(SessionId session, const MappedRegion& mapped, TimePoint now) {
  if (mapped.adopted) published_.keep_again(mapped.version, *mapped.adopted);
  static_cast<void>(release_import(session, mapped.imported.id, now));
}

Result<void> Broker::remove_region(SessionId session, const std::string& name, std::uint64_t version,
                                   TimePoint now, std::uint64_t request) {
  auto removed = sharer_.remove_region(session, name, version, request, now);
  settle(now);
  return removed;
}

Result<void> Broker::remove_region_of(const std::string& owner, const std::string& name,
                                      std::uint64_t version, TimePoint now) {
  auto removed = published_.remove_region_of(owner, name, version, now);
  settle(now);
  return removed;
}

Result<void> Broker::export_handle(SessionId id, SliceId slice, std::span<const LeaseId> leases,
                                   const HandleTerms& terms, const HandleBytes& bytes, TimePoint now) {
  auto session = state_.live(id);
  if (!session) return session.error();
  return exports_.export_handle(**session, slice, leases, terms, bytes, now);
}

Result<std::vector<FabricPart>> Broker::export_fabric(SessionId id, SliceId slice,
                                                      std::span<const LeaseId> leases, Bytes offset,
                                                      Bytes bytes, const FabricHandleOf& handle_of,
                                                      TimePoint now) {
  auto session = state_.live(id);
  if (!session) return session.error();
  const auto of = (*session)->slices.find(slice);
  // Memory under a forced reclaim must stay returnable: other borrowers would be asked for it too late.
  if (of != (*session)->slices.end() && reclaimer_.presses(**session, of->second.device))
    return Error{Code::kUnavailable, "the memory is being asked back; try again when that is over"};
  auto parts = exports_.export_fabric(**session, slice, leases, offset, bytes, handle_of, now);
  if (!parts) return parts;
  reclaimer_.replan();
  settle(now);
  return parts;
}

Result<void> Broker::revoke_handle(SessionId id, const HandleBytes& bytes) {
  auto session = state_.live(id);
  if (!session) return session.error();
  return exports_.revoke_handle(**session, bytes);
}

Result<void> Broker::release_import(SessionId id, ImportId import, TimePoint now) {
  auto session = state_.live(id);
  if (!session) return session.error();
  for (const auto& [device, request] : (*session)->asked) reclaimer_.note_pinned(**session, device);
  auto released = leases_.release_import(**session, import, now);
  if (!released) return released;
  reclaimer_.replan();
  settle(now);
  return {};
}

}  // namespace gpumem::core
