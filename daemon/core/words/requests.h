#pragma once
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/core/words/types.h"
#include "gpumem/result.h"

// The requests of sessions, as every transport passes them on. Broker checks and does them, so the fields may
// hold what a client made up.

namespace gpumem::core {

inline constexpr Duration kLongestWait = std::chrono::hours(7 * 24);
inline constexpr Duration kLongestRegionLife = std::chrono::hours(10 * 365 * 24);

struct OpenSlice {
  std::string device;  ///< UUID
  Bytes limit{};       ///< zero: none but the tenant's, as it is at any time
  std::string label{};
  bool is_private = false;  ///< its memory has no handles and is never published
};
struct CloseSlice {
  SliceId slice;
};
/// One part of a growth. Bytes are rounded up to the granularity.
struct GrowthPart {
  SliceId slice;
  Bytes bytes;
  Bytes min_bytes{};  ///< less is of no use; zero: `bytes`
  Bytes largest{};    ///< extents are preferably not larger; zero: no preference; or kOneExtent
};
struct Grow {
  std::vector<GrowthPart> parts;  ///< each of another device: all or nothing
  Duration wait{};
  bool is_probe = false;  ///< a refusal is no denial: its program has enough already, or asks again
  Duration unread{};      ///< so long the request had been there before the broker read it
};
struct Return {
  static constexpr std::size_t kMostLeases = 4096;  ///< by gRPC; a frame of the lane has fewer
  SliceId slice;
  std::vector<LeaseId> leases;
};
/// Makes a job of the session's, which lives as long as the session and the sessions that join it.
struct BeginJob {
  std::string label;
  Bytes limit{};  ///< of each device, for all its sessions together; zero: none but the tenant's
  std::uint64_t limit_points =
      0;  ///< instead: hundredths of a percent of what its tenant can have; zero: none
  // Likewise, of the host store.
  Bytes host_limit{};
  std::uint64_t host_limit_points = 0;
};
/// Reserves memory for the session's job. It waits in the line as a growth does.
struct ReserveForJob {
  std::string device;  ///< UUID
  Bytes bytes;         ///< less, where its tenant cannot have as much
  Duration wait{};
  Duration unread{};  ///< as of Grow
};
/// What the session's job has used so far.
struct DescribeJob {};
struct DeclareCharge {
  std::string device;  ///< UUID
  Bytes bytes;         ///< in all
  /// An increase that would pass a limit is refused.
  bool is_bounded = false;
  bool is_probe = false;  ///< a refusal is no denial: the process asks again
};
/// The session's process is about to make a context on the device. Answered when the driver has memory for
/// it.
struct AnnounceContext {
  std::string device;  ///< UUID
  Duration wait{};
};
/// What has become of an announced context.
struct ContextDone {
  enum class Outcome : std::uint64_t { kMade, kFailed, kOutOfMemory };
  /// A client tries so often to make a context. Then it was refused one.
  static constexpr std::size_t kAttempts = 6;
  std::string device;  ///< UUID
  Outcome outcome = Outcome::kMade;
};
/// A handle of a range of the slice's memory, for sessions of the same tenant.
struct ExportHandle {
  SliceId slice{};
  std::vector<LeaseId> leases{};  ///< accepted, in the range's order
  Bytes offset{};                 ///< of the range, in the leases one after the other
  Bytes bytes{};                  ///< zero: all the rest
  Duration life{};                ///< zero: kDefaultLife
  std::uint64_t uses = 0;         ///< zero: 1

  static constexpr Duration kDefaultLife = std::chrono::minutes(1);
  TimePoint expires(TimePoint now) const {
    return now + std::min(life == Duration::zero() ? kDefaultLife : life, kLongestWait);
  }
};
struct ImportHandle {
  HandleBytes handle{};
};
struct RevokeHandle {
  HandleBytes handle{};
};
struct ReleaseImport {
  ImportId import;
};

/// The tenants that may map a region, besides the one that has published it.
enum class Sharing : std::uint64_t {
  kPrivate,  ///< nobody
  kGroup,    ///< all tenants below the publisher's parent tenant
  kPublic,   ///< everybody who may connect
  kNamed,    ///< the named tenants, and the tenants below them
};

/// Names a range of the slice's memory for others to map.
struct Publish {
  std::string name;
  SliceId slice{};
  std::vector<LeaseId> leases{};  ///< accepted, in the range's order
  Bytes offset{};                 ///< of the range, in the leases one after the other
  Bytes bytes{};                  ///< zero: all the rest
  Bytes layout{};                 ///< of the range, the last
  LayoutDigest digest{};
  Sharing sharing = Sharing::kPrivate;
  std::vector<std::string> readers{};
  Duration life{};           ///< zero: as long as its memory
  bool keep = false;         ///< the region outlives the processes that have its memory
  Duration linger{};         ///< of a kept one: so long after the last of them has left; zero: for ever
  bool sealed = false;       ///< nobody writes to it
  std::uint64_t number = 0;  ///< the client's own of this request; 0: it is not made again

  TimePoint expires(TimePoint now) const {
    return life == Duration::zero() ? TimePoint::max() : now + std::min(life, kLongestRegionLife);
  }
  /// As Region::linger.
  Duration lingers() const {
    return linger == Duration::zero() ? Duration::max() : std::min(linger, kLongestRegionLife);
  }
};

/// How a region is mapped.
/// kOwner    A kept region that no process has lives with the session from now on.
/// kWriter   The session, of the region's own tenant, will write to it.
enum class MapAs : std::uint64_t { kReader, kOwner, kWriter };

struct MapRegion {
  std::string owner;  ///< a tenant's name; empty: the session's own
  std::string name;
  std::uint64_t version = 0;  ///< 0: the newest
  MapAs how = MapAs::kReader;
  std::string device{};          ///< a UUID: of those whose memory is of this device; empty: of all
  std::uint64_t newer_than = 0;  ///< the newest counts only if its version is higher; 0: any
  Duration wait{};               ///< for it to be published
  Duration reserve_for{};        ///< as MapOrReserve: if there is none, its name is reserved for so long
  std::uint64_t number = 0;      ///< as MapOrReserve

  bool reserves() const { return reserve_for > Duration::zero(); }
};
/// Maps a region of the session's own tenant. Its name is reserved if there is none.
struct MapOrReserve {
  std::string name;
  Duration life{};           ///< of the reservation; zero: kDefaultLife
  Duration wait{};           ///< for what another session has reserved
  std::uint64_t number = 0;  ///< the client's own of this request: calling it off releases what it got

  static constexpr Duration kDefaultLife = std::chrono::minutes(10);
  MapRegion as_map() const {
    return {.owner = {},
            .name = name,
            .wait = wait,
            .reserve_for = std::min(life == Duration::zero() ? kDefaultLife : life, kLongestWait),
            .number = number};
  }
};
struct ReleaseReservation {
  ReservationId reservation;
};
struct RemoveRegion {
  std::string name;
  std::uint64_t version = 0;  ///< zero: the newest
  std::uint64_t number = 0;   ///< as of Publish
};
struct Ping {};
/// The session has nothing more to give back at present.
struct Spent {
  std::string device;  ///< UUID
};
struct Describe {};
struct Explain {};

/// Each of the requests but those of contexts, which only the lane has. A transport that does not have one of
/// them fails its test.
using AnyRequest =
    std::variant<OpenSlice, CloseSlice, Grow, Return, ExportHandle, ImportHandle, RevokeHandle, ReleaseImport,
                 Publish, MapRegion, MapOrReserve, ReleaseReservation, RemoveRegion, DeclareCharge, Ping,
                 Spent, Describe, Explain, BeginJob, ReserveForJob, DescribeJob>;
inline constexpr std::array<std::string_view, std::variant_size_v<AnyRequest>> kRequestNames{
    "OpenSlice",    "CloseSlice",    "Grow",       "Return",    "ExportHandle", "ImportHandle",
    "RevokeHandle", "ReleaseImport", "Publish",    "MapRegion", "MapOrReserve", "ReleaseReservation",
    "RemoveRegion", "Charge",        "Ping",       "Spent",     "Describe",     "Explain",
    "BeginJob",     "ReserveForJob", "DescribeJob"};

/// Whether a request can be understood, whatever the broker lends. Errors  kInvalidArgument.
Result<void> check(const OpenSlice& request);
Result<void> check(const Grow& request);
Result<void> check(const BeginJob& request);
Result<void> check(const ReserveForJob& request);
Result<void> check(const ImportHandle& request);
Result<void> check(const Publish& request);
Result<void> check(const MapRegion& request);
Result<void> check(const RemoveRegion& request);
/// Also of a device that is looked for: the answer shows the name, and has to stay short enough to be sent.
Result<void> check_device_name(std::string_view device);

/// A handle that nobody can guess. check() recognises it.
HandleBytes new_handle();

struct JobBegun {
  CommandJobId job;
};
/// The use and the waits of all sessions of a job, over its whole time.
struct JobAccount {
  Bytes peak;  ///< of all GPUs, the largest; of the host, if it had nothing of a GPU
  Duration waited{};
  std::uint64_t denied = 0;
};
struct SliceOpened {
  SliceId slice;
  Bytes limit;
  Bytes granularity;  ///< every extent's size is a multiple of it
};
struct HandleExported {
  HandleBytes handle{};
  TimePoint expires;
};

}  // namespace gpumem::core
