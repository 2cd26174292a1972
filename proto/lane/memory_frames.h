#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/lane/header.h"

// The frames of memory: slices, growths, leases, handles.

namespace gpumem::lane {

// ---- From the client ----

/// Answered with SliceOpened or Failed.
struct OpenSlice {
  static constexpr Kind kKind = Kind::kOpenSlice;
  std::uint64_t device;  ///< its place in Welcome
  std::uint64_t limit;   ///< bytes, rounded up to the granularity; 0: none but the tenant's
  Text<128> label;
  std::uint64_t is_private = 0;  ///< 1: its memory has no handles and is never published; else 0
};
/// Of a slice without leases. Answered with Done or Failed, as Return, Charge and Ping are.
struct CloseSlice {
  static constexpr Kind kKind = Kind::kCloseSlice;
  std::uint64_t slice;
};
/// As the largest extent of a GrowPart: the memory comes as one extent.
inline constexpr std::uint64_t kOneExtent = ~std::uint64_t{0};
struct GrowPart {
  std::uint64_t slice;
  std::uint64_t bytes;           ///< rounded up to the granularity
  std::uint64_t min_bytes;       ///< less is of no use; 0: `bytes`. Rounded up likewise
  std::uint64_t largest_extent;  ///< a preference; 0: none; or kOneExtent
};
/// All parts or nothing. Answered with Granted or Failed; before that, if it is not decided at once, with
/// Waiting.
struct Grow {
  static constexpr Kind kKind = Kind::kGrow;
  /// Of `flags`: a refusal is no denial: the program has enough already, or the client asks again.
  static constexpr std::uint32_t kProbe = 1;
  std::uint64_t wait;  ///< nanoseconds that the request may wait for memory
  std::uint32_t count;
  std::uint32_t flags;
  std::array<GrowPart, kMostParts> parts;  ///< each of another device
  static constexpr auto kList = &Grow::parts;
};
/// The leases' memory is unmapped and released. All of them or nothing.
struct Return {
  static constexpr Kind kKind = Kind::kReturn;
  std::uint64_t slice;
  std::uint64_t count;
  std::array<std::uint64_t, kMostReturned> leases;
  static constexpr auto kList = &Return::leases;
};
/// What the process holds of a device past the broker, in place of what it said before.
struct Charge {
  static constexpr Kind kKind = Kind::kCharge;
  std::uint64_t device;
  std::uint64_t bytes;  ///< in all
  /// Of `flags`: an increase that would pass a limit is refused.
  static constexpr std::uint64_t kBounded = 1;
  /// Of `flags`: a refusal is no denial, because the process asks again.
  static constexpr std::uint64_t kProbe = 2;
  std::uint64_t flags;
};
/// Every extent of a grant is mapped. Has no answer.
struct Accept {
  static constexpr Kind kKind = Kind::kAccept;
  std::uint64_t grant;
};
/// The client has no more to give back of a device. Has no answer.
struct Spent {
  static constexpr Kind kKind = Kind::kSpent;
  std::uint64_t device;
};
/// 64 bytes that name memory, for whoever is given them.
using HandleBytes = std::array<char, 64>;
/// Makes a handle of a range of a slice. Answered with HandleExported or Failed.
struct ExportHandle {
  static constexpr Kind kKind = Kind::kExportHandle;
  std::uint64_t slice;
  std::uint64_t offset;  ///< of the range, in the leases one after the other
  std::uint64_t bytes;   ///< of the range; 0: all the rest
  std::uint64_t life;    ///< nanoseconds in which it can be redeemed; 0: the broker's choice
  std::uint64_t uses;    ///< how often; 0: once
  std::uint64_t count;
  std::array<std::uint64_t, kMostLeases> leases;  ///< in the range's order
  static constexpr auto kList = &ExportHandle::leases;
};
/// Redeems a handle of a session of the same tenant. Answered with Imported or Failed.
struct ImportHandle {
  static constexpr Kind kKind = Kind::kImportHandle;
  HandleBytes handle;
};
/// Ends a handle of the session. What it was redeemed for stays. Answered with Done or Failed.
struct RevokeHandle {
  static constexpr Kind kKind = Kind::kRevokeHandle;
  HandleBytes handle;
};
/// The memory of an import is unmapped and released. Answered with Done or Failed.
struct ReleaseImport {
  static constexpr Kind kKind = Kind::kReleaseImport;
  std::uint64_t import;
};

// ---- From the broker ----

struct SliceOpened {
  static constexpr Kind kKind = Kind::kSliceOpened;
  std::uint64_t slice;
  std::uint64_t limit;
  std::uint64_t granularity;  ///< every extent's size is a multiple of it
};
struct GrantedLease {
  std::uint64_t lease;
  std::uint64_t size;
  std::uint64_t slice;
};
/// With a descriptor for each lease. What does not fit comes in further frames of the same grant.
struct Granted {
  static constexpr Kind kKind = Kind::kGranted;
  std::uint64_t grant;
  std::uint64_t missing;  ///< leases that are still to come
  std::uint64_t count;
  std::array<GrantedLease, kMostLeases> leases;  ///< part by part, largest first
  static constexpr auto kList = &Granted::leases;
};
struct HandleExported {
  static constexpr Kind kKind = Kind::kHandleExported;
  HandleBytes handle;
  std::uint64_t expires;  ///< nanoseconds of CLOCK_MONOTONIC
};
/// With a descriptor for each extent.
struct Imported {
  static constexpr Kind kKind = Kind::kImported;
  std::uint64_t import;
  std::uint64_t device;  ///< its place in Welcome
  std::uint64_t offset;  ///< of the range, in the extents one after the other
  std::uint64_t bytes;   ///< of the range
  std::uint64_t count;
  std::array<std::uint64_t, kMostLeases> sizes;  ///< of the extents
  static constexpr auto kList = &Imported::sizes;
};

// Their offsets are a contract with other languages.
static_assert(sizeof(OpenSlice) == 152 && offsetof(OpenSlice, limit) == 8 &&
              offsetof(OpenSlice, label) == 16 && offsetof(OpenSlice, is_private) == 144);
static_assert(sizeof(CloseSlice) == 8 && sizeof(Accept) == 8 && sizeof(Spent) == 8);
static_assert(sizeof(GrowPart) == 32 && offsetof(GrowPart, bytes) == 8 &&
              offsetof(GrowPart, min_bytes) == 16 && offsetof(GrowPart, largest_extent) == 24);
static_assert(offsetof(Grow, count) == 8 && offsetof(Grow, flags) == 12 && offsetof(Grow, parts) == 16);
static_assert(offsetof(Return, count) == 8 && offsetof(Return, leases) == 16);
static_assert(offsetof(ExportHandle, offset) == 8 && offsetof(ExportHandle, life) == 24 &&
              offsetof(ExportHandle, count) == 40 && offsetof(ExportHandle, leases) == 48);
static_assert(sizeof(ImportHandle) == 64 && sizeof(RevokeHandle) == 64 && sizeof(ReleaseImport) == 8 &&
              sizeof(HandleExported) == 72);
static_assert(offsetof(Imported, device) == 8 && offsetof(Imported, count) == 32 &&
              offsetof(Imported, sizes) == 40);
static_assert(sizeof(Charge) == 24 && offsetof(Charge, bytes) == 8 && offsetof(Charge, flags) == 16);
static_assert(sizeof(SliceOpened) == 24 && sizeof(GrantedLease) == 24);
static_assert(offsetof(Granted, missing) == 8 && offsetof(Granted, count) == 16 &&
              offsetof(Granted, leases) == 24);

}  // namespace gpumem::lane
