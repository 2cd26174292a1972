#pragma once
#include <array>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/api/explanation_limit.h"
#include "daemon/core/executor.h"

// What a session may ask of the broker, once for every transport: a request in the core's words, checked and
// done, and its answer.

namespace gpumem::api {

struct OpenSession {
  std::string label;  ///< for people
};
struct OpenSlice {
  std::string device;  ///< UUID
  Bytes limit;         ///< zero: none but the tenant's, as it is at any time
  std::string label;   ///< for people
};
struct CloseSlice {
  SliceId slice;
};
struct Grow {
  std::vector<core::Broker::Part> parts;  ///< each of another device
  core::Duration wait{};
};
struct Return {
  SliceId slice;
  std::vector<LeaseId> leases;
};
struct Charge {
  std::string device;  ///< UUID
  Bytes bytes;         ///< in all
};
struct ExportHandle {
  SliceId slice;
  std::vector<LeaseId> leases;  ///< in the range's order
  Bytes offset;                 ///< of the range, in the leases one after the other
  Bytes bytes;                  ///< zero: all the rest
  core::Duration life{};        ///< zero: kHandleLife
  std::uint64_t uses = 0;       ///< zero: 1
};
struct ImportHandle {
  core::HandleBytes handle{};
};
struct RevokeHandle {
  core::HandleBytes handle{};
};
struct ReleaseImport {
  core::ImportId import;
};
struct Publish {
  std::string name;
  SliceId slice;
  std::vector<LeaseId> leases;  ///< in the range's order
  Bytes offset;                 ///< of the range, in the leases one after the other
  Bytes bytes;                  ///< zero: all the rest
  Bytes layout;                 ///< of the range, the last
  core::LayoutDigest digest{};
  std::uint64_t sharing = 0;  ///< as core::Sharing
  std::vector<std::string> readers;
  core::Duration life{};     ///< zero: as long as its memory
  std::uint64_t keep = 0;    ///< 1: it outlives the processes that have its memory
  core::Duration linger{};   ///< of a kept one: so long after the last of them has left; zero: for ever
  std::uint64_t sealed = 0;  ///< 1: nobody writes to it
  std::uint64_t number = 0;  ///< the client's own of this request; 0: it is not made again
};
struct MapRegion {
  std::string owner;  ///< a tenant; empty: the session's own
  std::string name;
  std::uint64_t version = 0;     ///< zero: the newest
  std::uint64_t as = 0;          ///< as core::MapAs
  core::Duration wait{};         ///< for it to be published
  std::string device{};          ///< a UUID: of those whose memory is of this device; empty: of all
  std::uint64_t newer_than = 0;  ///< with version 0: a newer one than this; 0: any
};
struct MapOrReserve {
  std::string name;
  core::Duration life{};     ///< of the reservation; zero: kReservationLife
  core::Duration wait{};     ///< for what another session has reserved
  std::uint64_t number = 0;  ///< the client's own of this request: calling it off releases what it got
};
struct ReleaseReservation {
  core::ReservationId reservation;
};
struct RemoveRegion {
  std::string name;
  std::uint64_t version = 0;  ///< zero: the newest
  std::uint64_t number = 0;   ///< as of Publish
};
struct Ping {};
struct Spent {
  std::string device;  ///< UUID
};
struct Describe {};
struct Explain {};

/// Each of the calls. A transport that does not have one of them fails its test.
using Call = std::variant<OpenSlice, CloseSlice, Grow, Return, ExportHandle, ImportHandle, RevokeHandle,
                          ReleaseImport, Publish, MapRegion, MapOrReserve, ReleaseReservation, RemoveRegion,
                          Charge, Ping, Spent, Describe, Explain>;
inline constexpr std::array<std::string_view, std::variant_size_v<Call>> kCallNames{
    "OpenSlice",    "CloseSlice",    "Grow",    "Return",    "ExportHandle", "ImportHandle",
    "RevokeHandle", "ReleaseImport", "Publish", "MapRegion", "MapOrReserve", "ReleaseReservation",
    "RemoveRegion", "Charge",        "Ping",    "Spent",     "Describe",     "Explain"};

/// How long a handle can be redeemed, if it is not said.
inline constexpr core::Duration kHandleLife = std::chrono::minutes(1);
/// How long a name stays reserved, if it is not said.
inline constexpr core::Duration kReservationLife = std::chrono::minutes(10);

struct SliceOpened {
  SliceId slice;
  Bytes limit;
  Bytes granularity;  ///< every extent's size is a multiple of it
};
struct HandleExported {
  core::HandleBytes handle;
  core::TimePoint expires;
};

// Inside work on the core's thread. The session lives. What hands out memory, or names for it, is written
// down before it is answered, or undone: kUnavailable.

/// Of a transport without lanes: `connection` is that of the call, if there is one.
/// Errors  kInvalidArgument (label), and those of core::Executor::open_session.
Result<SessionId> open_session(core::Executor& executor, std::optional<int> connection,
                               const OpenSession& request, std::shared_ptr<core::SessionHolder> holder);
/// Errors  kInvalidArgument (label, name of the device, limit), and those of core::Broker::open_slice.
Result<SliceOpened> open_slice(core::Executor& executor, core::Broker& broker, SessionId session,
                               const OpenSlice& request, core::TimePoint now);
/// Errors  as core::Broker::close_slice.
Result<void> close_slice(core::Broker& broker, SessionId session, const CloseSlice& request,
                         core::TimePoint now);
/// Starts a growth, which `answer` gets the end of: at once, if the request cannot be one.
/// Returns  its number; none: it has been answered.
RequestId grow(core::Executor& executor, SessionId session, const Grow& request,
               core::Executor::GrowAnswer answer);
/// Errors  as core::Broker::give_back.
Result<void> give_back(core::Broker& broker, SessionId session, const Return& request, core::TimePoint now);
/// A new handle. Errors  as core::Broker::export_handle.
Result<HandleExported> export_handle(core::Broker& broker, SessionId session, const ExportHandle& request,
                                     core::TimePoint now);
/// The driver's own handles of the extents that the range touches. `life` and `uses` are not said: nobody can
/// take such a handle back. By gRPC only. Errors  kInvalidArgument (life, uses), and those of
/// core::Broker::export_fabric.
Result<std::vector<core::FabricPart>> export_fabric(core::Executor& executor, core::Broker& broker,
                                                    SessionId session, const ExportHandle& request,
                                                    core::TimePoint now);
/// Of a transport that carries descriptors. Errors  as core::Broker::import_handle.
Result<core::Imported> import_handle(core::Executor& executor, core::Broker& broker, SessionId session,
                                     const ImportHandle& request, core::TimePoint now);
/// Of a transport that does not.
Error cannot_import();
/// Errors  as core::Broker::revoke_handle.
Result<void> revoke_handle(core::Broker& broker, SessionId session, const RevokeHandle& request);
/// Errors  as core::Broker::release_import.
Result<void> release_import(core::Broker& broker, SessionId session, const ReleaseImport& request,
                            core::TimePoint now);
/// Answers its version. Errors  kInvalidArgument (name, sharing, readers), and those of
/// core::Broker::publish.
Result<core::RegionId> publish(core::Executor& executor, core::Broker& broker, SessionId session,
                               const Publish& request, core::TimePoint now);
/// Of a transport that carries descriptors, without a wait. Errors  as core::Broker::map_region.
Result<core::MappedRegion> map_region(core::Executor& executor, core::Broker& broker, SessionId session,
                                      const MapRegion& request, core::TimePoint now);
/// The same with one; `answer` gets what it has come to: at once, if the request cannot be one.
/// Returns  its number; none: it has been answered.
RequestId await_region(core::Executor& executor, SessionId session, const MapRegion& request,
                       core::Executor::MapAnswer answer);
/// The same of a region of the session's own tenant, whose name is reserved if there is none.
RequestId map_or_reserve(core::Executor& executor, SessionId session, const MapOrReserve& request,
                         core::Executor::MapAnswer answer);
/// Errors  as core::Broker::release_reservation.
Result<void> release_reservation(core::Broker& broker, SessionId session, const ReleaseReservation& request,
                                 core::TimePoint now);
/// Errors  as core::Broker::remove_region.
Result<void> remove_region(core::Broker& broker, SessionId session, const RemoveRegion& request,
                           core::TimePoint now);
/// Of an administrator. Errors  kInvalidArgument (names), and those of core::Broker::remove_region_of.
Result<void> remove_region_of(core::Broker& broker, const std::string& owner, const RemoveRegion& request,
                              core::TimePoint now);
/// Errors  kInvalidArgument (name of the device), and those of core::Broker::charge.
Result<void> charge(core::Broker& broker, SessionId session, const Charge& request, core::TimePoint now);
/// Errors  kInvalidArgument (name of the device), kNotFound (device).
Result<void> spent(core::Broker& broker, SessionId session, const Spent& request, core::TimePoint now);
/// The session itself, with its slices. Errors  kNotFound: it has ended.
Result<core::SessionView> describe(const core::Broker& broker, SessionId session);
/// How its tenant stands, and what the requests of the tenant, and of those that belong to it, wait for.
/// Errors  kNotFound (it has ended), kResourceExhausted (`limit`).
Result<core::Explanation> explain(const core::Broker& broker, SessionId session, ExplanationLimit& limit,
                                  core::TimePoint now);

}  // namespace gpumem::api
