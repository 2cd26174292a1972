#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "gpumem/result.h"

// The frames of the lane, the SOCK_SEQPACKET socket of a session: one frame a packet. docs/lane.md describes
// them for other languages. Fixed-width words in the machine's byte order, no pointers; a frame with a list
// ends after the list's last element.

namespace gpumem::lane {

/// "GML3" as little-endian bytes. No message of the protocol before this one starts with it.
inline constexpr std::uint32_t kMagic = 0x334c'4d47;
inline constexpr std::uint16_t kVersion = 6;
inline constexpr std::uint16_t kOldestVersion = 3;  ///< of the frames; the version before has no frames
inline constexpr std::uint16_t kResumeVersion = 4;  ///< from this one on, sessions can be resumed
inline constexpr std::uint16_t kRevokeVersion = 5;  ///< from this one on, handles can be revoked
inline constexpr std::uint16_t kRegionVersion = 6;  ///< from this one on, there are regions
inline constexpr std::size_t kMostBytes = 4096;     ///< of a frame; a longer one ends the session
inline constexpr std::size_t kMostDescriptors = 128;
inline constexpr std::size_t kMostParts = 32;  ///< of a growth: one for each device
inline constexpr std::size_t kMostLeases = 128;
inline constexpr std::size_t kMostReturned = 500;
inline constexpr std::size_t kMostHolders = 8;
inline constexpr std::size_t kMostDescribed = 20;  ///< slices in a frame
inline constexpr std::size_t kMostClaimed = 250;   ///< things in a frame

enum class Kind : std::uint16_t {
  // From the client. Those from kCancel to kGoodbye are told and not answered; the others are requests,
  // answered
  // once.
  kHello = 1,
  kOpenSlice = 2,
  kCloseSlice = 3,
  kGrow = 4,
  kReturn = 5,
  kCharge = 6,
  kPing = 7,
  kCancel = 8,
  kAccept = 9,
  kSpent = 10,
  kGoodbye = 11,
  kExportHandle = 12,
  kImportHandle = 13,
  kReleaseImport = 14,
  kDescribe = 15,
  kExplain = 16,
  kResume = 17,
  kRevokeHandle = 18,
  kPublish = 19,
  kMapRegion = 20,
  kRemoveRegion = 21,
  // From the broker.
  kWelcome = 129,
  kSliceOpened = 130,
  kWaiting = 131,
  kGranted = 132,
  kDone = 133,
  kFailed = 134,
  kHandleExported = 135,
  kImported = 136,
  kDescribed = 137,
  kExplained = 138,
  kPublished = 139,
  kRegionMapped = 140,
};

/// The first version that has frames of `kind`. A peer that speaks an older one would end the session.
constexpr std::uint16_t first_version_of(Kind kind) {
  switch (kind) {
    case Kind::kResume: return kResumeVersion;
    case Kind::kRevokeHandle: return kRevokeVersion;
    case Kind::kPublish:
    case Kind::kMapRegion:
    case Kind::kRemoveRegion: return kRegionVersion;
    default: return kOldestVersion;
  }
}

struct Header {
  std::uint32_t magic;
  std::uint16_t version;
  Kind kind;
  std::uint64_t request;   ///< the request's number, chosen by the client; its answer has the same
  std::uint64_t deadline;  ///< until when an answer is of use: nanoseconds of CLOCK_MONOTONIC; 0: always
};

/// At most N bytes, padded with zeros.
template <std::size_t N>
struct Text {
  std::array<char, N> bytes;

  std::string_view view() const { return {bytes.data(), ::strnlen(bytes.data(), N)}; }
  bool is_padded() const {
    for (std::size_t i = view().size(); i < N; ++i)
      if (bytes[i] != 0) return false;
    return true;
  }
  /// As much of `words` as there is room for.
  static Text of(std::string_view words) {
    Text text{};
    const std::size_t size = words.size() < N ? words.size() : N;
    std::memcpy(text.bytes.data(), words.data(), size);
    return text;
  }
};

// ---- From the client ----

/// The first frame, once. Answered with Welcome or Failed.
struct Hello {
  static constexpr Kind kKind = Kind::kHello;
  std::uint16_t oldest;  ///< versions that the client speaks
  std::uint16_t newest;
  std::uint32_t zero;
  Text<128> label;  ///< for people; printable
};
enum class Claimed : std::uint64_t { kSlice = 1, kLease = 2, kImport = 3 };
struct ClaimedThing {
  Claimed kind;
  std::uint64_t id;
};
/// In place of Hello, from the process of a session whose broker was restarted: goes on with the session, and
/// says what it has. What does not fit comes in further frames of the same request, before anything else.
/// What is not claimed comes back to the broker. Answered with Welcome or Failed.
struct Resume {
  static constexpr Kind kKind = Kind::kResume;
  std::uint16_t oldest;  ///< versions that the client speaks
  std::uint16_t newest;
  std::uint32_t zero;
  std::uint64_t session;
  std::uint64_t missing;  ///< things that are still to come
  std::uint64_t count;
  std::array<ClaimedThing, kMostClaimed> things;  ///< each kind ascends
  static constexpr auto kList = &Resume::things;
};
/// Answered with SliceOpened or Failed.
struct OpenSlice {
  static constexpr Kind kKind = Kind::kOpenSlice;
  std::uint64_t device;  ///< its place in Welcome
  std::uint64_t limit;   ///< bytes, rounded up to the granularity; 0: none but the tenant's
  Text<128> label;
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
  std::uint64_t least;           ///< less is of no use; 0: `bytes`. Rounded up likewise
  std::uint64_t largest_extent;  ///< a preference; 0: none; or kOneExtent
};
/// All parts or nothing. Answered with Granted or Failed; before that, if it is not decided at once, with
/// Waiting.
struct Grow {
  static constexpr Kind kKind = Kind::kGrow;
  std::uint64_t wait;  ///< nanoseconds that the request may wait for memory
  std::uint64_t count;
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
};
struct Ping {
  static constexpr Kind kKind = Kind::kPing;
};
/// Withdraws a growth, or a region that is waited for. It is answered as what it has come to: with Failed
/// (kCancelled), or as if nothing had been said. Has no answer of its own.
struct Cancel {
  static constexpr Kind kKind = Kind::kCancel;
  std::uint64_t growth;  ///< the number of its request
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
/// The client has unmapped everything and leaves. Has no answer.
struct Goodbye {
  static constexpr Kind kKind = Kind::kGoodbye;
};

/// What the session has. Answered with Described.
struct Describe {
  static constexpr Kind kKind = Kind::kDescribe;
};
/// How the session's tenant stands. Answered with Explained.
struct Explain {
  static constexpr Kind kKind = Kind::kExplain;
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
  std::array<Text<128>, 8> readers;  ///< tenants, if they are named; the rest are empty
  std::uint64_t count;
  std::array<std::uint64_t, kMostLeases> leases;  ///< in the range's order
  static constexpr auto kList = &Publish::leases;
};
enum class MapAs : std::uint64_t { kReader, kOwner };
/// Answered with RegionMapped or Failed; before that, if it is waited for, with Waiting. Cancel withdraws it.
struct MapRegion {
  static constexpr Kind kKind = Kind::kMapRegion;
  Text<128> owner;  ///< a tenant; empty: the session's own
  RegionName name;
  std::uint64_t version;  ///< 0: the newest
  MapAs as;               ///< kOwner: a kept region that no process has lives with the session from now on
  std::uint64_t wait;     ///< nanoseconds that the newest may be waited for; 0: not at all
};
/// Of the session's tenant. Who has mapped it keeps it. Answered with Done or Failed.
struct RemoveRegion {
  static constexpr Kind kKind = Kind::kRemoveRegion;
  RegionName name;
  std::uint64_t version;  ///< 0: the newest
};
/// The memory of an import is unmapped and released. Answered with Done or Failed.
struct ReleaseImport {
  static constexpr Kind kKind = Kind::kReleaseImport;
  std::uint64_t import;
};

// ---- From the broker ----

/// With three descriptors: the broker's page, the client's page, the bell. docs/shm-layout.md.
struct Welcome {
  static constexpr Kind kKind = Kind::kWelcome;
  std::uint64_t version;  ///< of all further frames
  std::uint64_t session;
  Text<128> tenant;
  Text<1024> driver_folder;  ///< where the broker found its driver; empty: the system's search path
  std::uint64_t count;
  std::array<Text<48>, 32> devices;  ///< UUIDs, by their place in the shared pages
  static constexpr auto kList = &Welcome::devices;
};
struct SliceOpened {
  static constexpr Kind kKind = Kind::kSliceOpened;
  std::uint64_t slice;
  std::uint64_t limit;
  std::uint64_t granularity;  ///< every extent's size is a multiple of it
};
/// The growth or the MapRegion waits, or has been granted and the driver makes its memory. Its answer comes
/// when it comes: as long as Pings are answered, the broker lives.
struct Waiting {
  static constexpr Kind kKind = Kind::kWaiting;
  std::uint64_t until;  ///< it waits no longer: nanoseconds of CLOCK_MONOTONIC; 0: it has been granted
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
struct Done {
  static constexpr Kind kKind = Kind::kDone;
};
struct Holder {
  std::uint64_t session;  ///< 0: a tenant as a whole
  std::int64_t pid;
  std::uint64_t charged;
  Text<16> command;
  Text<128> tenant;
};
/// Why a growth was refused, as gpumem.v1.Denial. Bytes and milliseconds.
struct Denial {
  std::uint64_t reason;  ///< as gpumem.v1.Denial.Reason; 0: there is no denial
  std::uint64_t asked;
  std::uint64_t asked_least;
  std::uint64_t tenant_limit;
  std::uint64_t tenant_guarantee;
  std::uint64_t tenant_charged;
  std::uint64_t pool;
  std::uint64_t free;
  std::uint64_t kept_for_others;
  std::uint64_t charged_to_others;
  std::uint64_t waiters_ahead;
  std::uint64_t waited;
  std::uint64_t wait_limit;
  std::uint64_t limiting_limit;
  std::uint64_t limiting_charged;
  std::uint64_t returning;
  std::uint64_t asked_back;
  std::uint64_t soonest_known;  ///< 0: it depends on what others do
  std::uint64_t soonest;
  Text<48> device;
  Text<128> tenant;
  Text<128> limiting_tenant;
  Text<256> soonest_why;
};
struct Failed {
  static constexpr Kind kKind = Kind::kFailed;
  std::uint64_t code;  ///< a gRPC status code
  Text<1024> message;
  Denial denial;
  std::uint64_t own;  ///< of the holders: of the caller's own tenant; the others' are told to administrators
  std::uint64_t count;
  std::array<Holder, kMostHolders> holders;  ///< each kind with the largest first
  static constexpr auto kList = &Failed::holders;
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

struct DescribedSlice {
  std::uint64_t slice;
  std::uint64_t device;  ///< its place in Welcome
  std::uint64_t limit;
  std::uint64_t charged;
  std::uint64_t waiting;  ///< bytes asked for and not yet granted
  Text<128> label;
};
/// The session's slices. What does not fit comes in further frames of the same request.
struct Described {
  static constexpr Kind kKind = Kind::kDescribed;
  std::uint64_t missing;  ///< slices that are still to come
  std::uint64_t count;
  std::array<DescribedSlice, kMostDescribed> slices;
  static constexpr auto kList = &Described::slices;
};
/// As gpumem.v1.Standing. Bytes and milliseconds.
struct Standing {
  std::uint64_t guarantee;
  std::uint64_t limit;
  std::uint64_t weight;
  std::uint64_t priority;
  std::uint64_t charged;
  std::uint64_t declared;
  std::uint64_t overhead;
  std::uint64_t available;
  std::uint64_t burst;
  std::uint64_t debt;
  std::uint64_t asked_back;
  std::uint64_t asked_back_within;
};
/// How the session's tenant stands on each device, in Welcome's order.
struct Explained {
  static constexpr Kind kKind = Kind::kExplained;
  Text<128> tenant;
  std::uint64_t requests;  ///< that wait, in all
  std::uint64_t count;
  std::array<Standing, 32> devices;
  static constexpr auto kList = &Explained::devices;
};

/// An error without a denial.
Failed failed_with(const Error& error);

/// A body that ends with a list of `count` elements.
template <class Body>
concept Listed = requires {
  Body::kList;
};

/// The bytes of `body` that travel. Its count is within bounds.
template <class Body>
std::size_t size_of(const Body& body) {
  if constexpr (Listed<Body>) {
    const auto& list = body.*Body::kList;
    return sizeof body - (list.size() - body.count) * sizeof(list[0]);
  } else {
    return std::is_empty_v<Body> ? 0 : sizeof body;
  }
}

/// A frame to be sent.
class Outgoing {
 public:
  /// `body`  its count is within bounds.
  template <class Body>
  explicit Outgoing(const Body& body, std::uint64_t request = 0, std::uint64_t deadline = 0)
      : size_(sizeof(Header) + size_of(body)) {
    static_assert(std::is_trivially_copyable_v<Body> && sizeof(Header) + sizeof(Body) <= kMostBytes);
    const Header header{kMagic, kOldestVersion, Body::kKind, request, deadline};
    std::memcpy(bytes_.data(), &header, sizeof header);
    if (size_ > sizeof header) std::memcpy(bytes_.data() + sizeof header, &body, size_ - sizeof header);
  }
  Outgoing(const Outgoing& other) { *this = other; }
  Outgoing& operator=(const Outgoing& other) {
    size_ = other.size_;
    std::memmove(bytes_.data(), other.bytes_.data(), size_);
    return *this;
  }
  std::string_view bytes() const { return {bytes_.data(), size_}; }

 private:
  std::array<char, kMostBytes> bytes_;  // the first `size_` are written
  std::size_t size_;
};

/// A frame as it came. `body` is part of the packet it was parsed from.
struct Incoming {
  Header header;
  std::string_view body;
};

/// Whether `packet` is a frame at all, rather than a message of the protocol before.
bool is_frame(std::string_view packet);

/// Errors  kInvalidArgument: no header, or of a version that is not spoken.
Result<Incoming> parse(std::string_view packet);

/// The body of `frame`, which is of the kind asked for: as long as it has to be, its texts padded, its count
/// within bounds. What the values mean is the receiver's to judge.
/// Errors  kInvalidArgument: says what is wrong.
template <class Body>
Result<Body> body_of(const Incoming& frame);

// Their offsets are a contract with other languages.
static_assert(sizeof(Header) == 24 && offsetof(Header, version) == 4 && offsetof(Header, kind) == 6 &&
              offsetof(Header, request) == 8 && offsetof(Header, deadline) == 16);
static_assert(sizeof(Hello) == 136 && offsetof(Hello, newest) == 2 && offsetof(Hello, label) == 8);
static_assert(offsetof(Resume, newest) == 2 && offsetof(Resume, session) == 8 &&
              offsetof(Resume, missing) == 16 && offsetof(Resume, count) == 24 &&
              offsetof(Resume, things) == 32 && sizeof(ClaimedThing) == 16);
static_assert(sizeof(OpenSlice) == 144 && offsetof(OpenSlice, limit) == 8 &&
              offsetof(OpenSlice, label) == 16);
static_assert(sizeof(CloseSlice) == 8 && sizeof(Cancel) == 8 && sizeof(Accept) == 8 && sizeof(Spent) == 8);
static_assert(sizeof(GrowPart) == 32 && offsetof(GrowPart, bytes) == 8 && offsetof(GrowPart, least) == 16 &&
              offsetof(GrowPart, largest_extent) == 24);
static_assert(offsetof(Grow, count) == 8 && offsetof(Grow, parts) == 16);
static_assert(offsetof(Return, count) == 8 && offsetof(Return, leases) == 16);
static_assert(offsetof(ExportHandle, offset) == 8 && offsetof(ExportHandle, life) == 24 &&
              offsetof(ExportHandle, count) == 40 && offsetof(ExportHandle, leases) == 48);
static_assert(sizeof(ImportHandle) == 64 && sizeof(RevokeHandle) == 64 && sizeof(ReleaseImport) == 8 &&
              sizeof(HandleExported) == 72);
static_assert(offsetof(Publish, slice) == 128 && offsetof(Publish, digest) == 160 &&
              offsetof(Publish, sharing) == 192 && offsetof(Publish, keep) == 208 &&
              offsetof(Publish, readers) == 224 && offsetof(Publish, count) == 1248 &&
              offsetof(Publish, leases) == 1256);
static_assert(offsetof(MapRegion, name) == 128 && offsetof(MapRegion, version) == 256 &&
              offsetof(MapRegion, as) == 264 && sizeof(MapRegion) == 280 && sizeof(RemoveRegion) == 136 &&
              sizeof(Published) == 8);
static_assert(offsetof(RegionMapped, digest) == 16 && offsetof(RegionMapped, import) == 48 &&
              offsetof(RegionMapped, count) == 80 && offsetof(RegionMapped, sizes) == 88);
static_assert(offsetof(Imported, device) == 8 && offsetof(Imported, count) == 32 &&
              offsetof(Imported, sizes) == 40);
static_assert(sizeof(Charge) == 16 && offsetof(Charge, bytes) == 8);
static_assert(offsetof(Welcome, session) == 8 && offsetof(Welcome, tenant) == 16 &&
              offsetof(Welcome, driver_folder) == 144 && offsetof(Welcome, count) == 1168 &&
              offsetof(Welcome, devices) == 1176 && sizeof(Welcome) == 2712);
static_assert(sizeof(SliceOpened) == 24 && sizeof(Waiting) == 8 && sizeof(GrantedLease) == 24);
static_assert(offsetof(Granted, missing) == 8 && offsetof(Granted, count) == 16 &&
              offsetof(Granted, leases) == 24);
static_assert(sizeof(Holder) == 168 && offsetof(Holder, command) == 24 && offsetof(Holder, tenant) == 40);
static_assert(sizeof(Denial) == 712 && offsetof(Denial, soonest) == 144 && offsetof(Denial, device) == 152 &&
              offsetof(Denial, tenant) == 200 && offsetof(Denial, limiting_tenant) == 328 &&
              offsetof(Denial, soonest_why) == 456);
static_assert(sizeof(DescribedSlice) == 168 && offsetof(DescribedSlice, label) == 40 &&
              offsetof(Described, count) == 8 && offsetof(Described, slices) == 16);
static_assert(sizeof(Standing) == 96 && offsetof(Standing, charged) == 32 &&
              offsetof(Standing, burst) == 64 && offsetof(Explained, requests) == 128 &&
              offsetof(Explained, count) == 136 && offsetof(Explained, devices) == 144);
static_assert(offsetof(Failed, message) == 8 && offsetof(Failed, denial) == 1032 &&
              offsetof(Failed, own) == 1744 && offsetof(Failed, count) == 1752 &&
              offsetof(Failed, holders) == 1760);

}  // namespace gpumem::lane
