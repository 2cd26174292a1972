#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/lane/memory_frames.h"

// The frames of regions.

namespace gpumem::lane {

// ---- From the client ----

using RegionName = Text<128>;  ///< of printable characters
using LayoutDigest = std::array<char, 32>;
enum class Sharing : std::uint64_t { kPrivate, kGroup, kPublic, kNamed };
/// Names a range of a slice, whose content does not change any more. Answered with Published or Failed.
struct Publish {
  static constexpr Kind kKind = Kind::kPublish;
  RegionName name;
  std::uint64_t slice;
  std::uint64_t offset;  ///< of the range, in the leases one after the other
  std::uint64_t bytes;   ///< of the range; 0: all the rest
  std::uint64_t layout;  ///< so many of its last bytes say what is in it
  LayoutDigest digest;   ///< of the layout
  Sharing sharing;
  std::uint64_t life;                ///< nanoseconds; 0: as long as its memory
  std::uint64_t keep;                ///< 1: it outlives the processes that have its memory; else 0
  std::uint64_t linger;              ///< of a kept one: nanoseconds after the last has left; 0: for ever
  std::uint64_t sealed;              ///< 1: nobody writes to it any more; else 0
  std::array<Text<128>, 8> readers;  ///< tenants, if they are named; the rest are empty
  std::uint64_t count;
  std::array<std::uint64_t, kMostLeases> leases;  ///< in the range's order
  static constexpr auto kList = &Publish::leases;
};
enum class MapAs : std::uint64_t { kReader, kOwner, kWriter };
/// As the device of a MapRegion: the region's memory is of whichever device.
inline constexpr std::uint64_t kAnyDevice = ~std::uint64_t{0};
/// Answered with RegionMapped or Failed; before that, if it is waited for, with Waiting. Cancel withdraws it.
struct MapRegion {
  static constexpr Kind kKind = Kind::kMapRegion;
  Text<128> owner;  ///< a tenant; empty: the session's own
  RegionName name;
  std::uint64_t version;  ///< 0: the newest
  /// kOwner: a kept region that no process has lives with the session from now on. kWriter: it is not
  /// sealed, and of the session's tenant.
  MapAs as;
  std::uint64_t wait;                 ///< nanoseconds that the newest may be waited for; 0: not at all
  std::uint64_t device = kAnyDevice;  ///< its place in Welcome: of the regions of that device
  std::uint64_t newer_than = 0;       ///< with version 0: a newer one than this; 0: any
};
/// Maps the newest region of the session's tenant with this name. If there is none, reserves the name for the
/// first session that asks, which is to publish it; the others wait, for the region or for the reservation to
/// end without it. Answered with RegionMapped, NameReserved or Failed; before that, if it waits, with
/// Waiting. Cancel withdraws it.
struct MapOrReserve {
  static constexpr Kind kKind = Kind::kMapOrReserve;
  RegionName name;
  std::uint64_t life;  ///< of the reservation: nanoseconds; 0: the broker's choice
  std::uint64_t wait;  ///< nanoseconds for what another session has reserved; 0: not at all
};
/// The session does not publish what it has reserved: another one may. Answered with Done or Failed.
struct ReleaseReservation {
  static constexpr Kind kKind = Kind::kReleaseReservation;
  std::uint64_t reservation;
};
/// Of the session's tenant. Who has mapped it keeps it. Answered with Done or Failed.
struct RemoveRegion {
  static constexpr Kind kKind = Kind::kRemoveRegion;
  RegionName name;
  std::uint64_t version;  ///< 0: the newest
};

// ---- From the broker ----

struct Published {
  static constexpr Kind kKind = Kind::kPublished;
  std::uint64_t version;  ///< higher than that of every region before
};
/// As Imported, with a descriptor for each extent.
struct RegionMapped {
  static constexpr Kind kKind = Kind::kRegionMapped;
  std::uint64_t version;
  std::uint64_t layout;  ///< so many of the range's last bytes say what is in it
  LayoutDigest digest;   ///< of the layout, as its publisher says
  std::uint64_t import;
  std::uint64_t device;  ///< its place in Welcome
  std::uint64_t offset;  ///< of the range, in the extents one after the other
  std::uint64_t bytes;   ///< of the range
  std::uint64_t count;
  std::array<std::uint64_t, kMostLeases> sizes;  ///< of the extents
  static constexpr auto kList = &RegionMapped::sizes;
};
/// There is no region of that name. It is the session's to publish, which fulfils the reservation.
struct NameReserved {
  static constexpr Kind kKind = Kind::kNameReserved;
  std::uint64_t reservation;
  std::uint64_t expires;  ///< it ends then: nanoseconds of CLOCK_MONOTONIC
};

// Their offsets are a contract with other languages.
static_assert(offsetof(Publish, slice) == 128 && offsetof(Publish, digest) == 160 &&
              offsetof(Publish, sharing) == 192 && offsetof(Publish, keep) == 208 &&
              offsetof(Publish, sealed) == 224 && offsetof(Publish, readers) == 232 &&
              offsetof(Publish, count) == 1256 && offsetof(Publish, leases) == 1264);
static_assert(offsetof(MapRegion, name) == 128 && offsetof(MapRegion, version) == 256 &&
              offsetof(MapRegion, as) == 264 && offsetof(MapRegion, device) == 280 &&
              offsetof(MapRegion, newer_than) == 288 && sizeof(MapRegion) == 296 &&
              sizeof(RemoveRegion) == 136 && sizeof(Published) == 8);
static_assert(offsetof(MapOrReserve, life) == 128 && offsetof(MapOrReserve, wait) == 136 &&
              sizeof(MapOrReserve) == 144 && sizeof(ReleaseReservation) == 8 && sizeof(NameReserved) == 16 &&
              offsetof(NameReserved, expires) == 8);
static_assert(offsetof(RegionMapped, digest) == 16 && offsetof(RegionMapped, import) == 48 &&
              offsetof(RegionMapped, count) == 80 && offsetof(RegionMapped, sizes) == 88);

}  // namespace gpumem::lane
