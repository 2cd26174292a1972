#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/lane/header.h"

// The frames of a session: its beginning and end, what it is told of itself, and failures.

namespace gpumem::lane {

// ---- From the client ----

/// The first frame, once. Answered with Welcome or Failed.
struct Hello {
  static constexpr Kind kKind = Kind::kHello;
  std::uint16_t oldest;  ///< versions that the client speaks
  std::uint16_t newest;
  std::uint32_t zero;
  std::uint64_t job;  ///< that it joins; 0: none
  Text<128> label;    ///< for people; printable
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
struct Ping {
  static constexpr Kind kKind = Kind::kPing;
};
/// Withdraws a growth, or a region that is waited for. It is answered as what it has come to: with Failed
/// (kCancelled), or as if nothing had been said. Has no answer of its own.
struct Cancel {
  static constexpr Kind kKind = Kind::kCancel;
  std::uint64_t growth;  ///< the number of its request
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
/// Makes a job of the session's. Answered with JobBegun or Failed.
struct BeginJob {
  static constexpr Kind kKind = Kind::kBeginJob;
  std::uint64_t limit;         ///< of each device, for all its sessions together; 0: none but the tenant's
  std::uint64_t limit_points;  ///< instead: hundredths of a percent of what the tenant can have; 0: none
  std::uint64_t host_limit;    ///< as limit, of the host store
  std::uint64_t host_limit_points;
  Text<128> label;
};
/// Reserves memory for the session's job. Answered as Grow, but with Done in place of Granted.
struct ReserveForJob {
  static constexpr Kind kKind = Kind::kReserveForJob;
  std::uint64_t wait;  ///< nanoseconds that the request may wait for memory
  std::uint64_t device;
  std::uint64_t bytes;  ///< less, where the tenant cannot have as much
};
/// The process is about to make a context. Answered as ReserveForJob, when the driver has memory for it.
struct AnnounceContext {
  static constexpr Kind kKind = Kind::kAnnounceContext;
  std::uint64_t wait;  ///< nanoseconds that the request may wait for memory
  std::uint64_t device;
};
/// The oldest context of the device that was announced is made, or has failed. Has no answer.
struct ContextDone {
  static constexpr Kind kKind = Kind::kContextDone;
  /// So often a client announces a context for which the driver had no memory. The broker expects it to take
  /// more each time.
  static constexpr std::size_t kAttempts = 6;
  std::uint64_t device;
  std::uint64_t outcome;  ///< 0: it is made; 1: it failed; 2: the driver had no memory for it
};
/// What the session's job has used. Answered with JobDescribed or Failed.
struct DescribeJob {
  static constexpr Kind kKind = Kind::kDescribeJob;
};

// ---- From the broker ----

/// With three descriptors: the broker's page, the client's page, the bell. docs/shm-layout.md.
struct Welcome {
  static constexpr Kind kKind = Kind::kWelcome;
  std::uint64_t version;  ///< of all further frames
  std::uint64_t session;
  std::uint64_t job;  ///< that it is in; 0: none, or the one of the Hello is not its user's
  Text<128> tenant;
  Text<1024> driver_folder;         ///< where the broker found its driver; empty: the system's search path
  std::uint64_t is_host_of_driver;  ///< 1: extents of the host store are the driver's, as a GPU's; 0: files
  std::uint64_t count;
  std::array<Text<48>, 32> devices;  ///< UUIDs, by their place in the shared pages
  static constexpr auto kList = &Welcome::devices;
};
/// The growth or the MapRegion waits, or has been granted and the driver makes its memory. Its answer comes
/// when it comes: as long as Pings are answered, the broker lives.
struct Waiting {
  static constexpr Kind kKind = Kind::kWaiting;
  std::uint64_t until;  ///< it waits no longer: nanoseconds of CLOCK_MONOTONIC; 0: it has been granted
};
struct Done {
  static constexpr Kind kKind = Kind::kDone;
};
struct JobBegun {
  static constexpr Kind kKind = Kind::kJobBegun;
  std::uint64_t job;
};
struct JobDescribed {
  static constexpr Kind kKind = Kind::kJobDescribed;
  std::uint64_t peak;    ///< bytes that it was lent at one time, the most of any device
  std::uint64_t waited;  ///< milliseconds, of all its requests together
  std::uint64_t denied;  ///< requests
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
  std::uint64_t asked_min;
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

// Their offsets are a contract with other languages.
static_assert(sizeof(Hello) == 144 && offsetof(Hello, newest) == 2 && offsetof(Hello, job) == 8 &&
              offsetof(Hello, label) == 16);
static_assert(sizeof(BeginJob) == 160 && offsetof(BeginJob, label) == 32 && sizeof(ReserveForJob) == 24 &&
              sizeof(AnnounceContext) == 16 && sizeof(ContextDone) == 16 && sizeof(JobBegun) == 8 &&
              sizeof(JobDescribed) == 24);
static_assert(offsetof(Resume, newest) == 2 && offsetof(Resume, session) == 8 &&
              offsetof(Resume, missing) == 16 && offsetof(Resume, count) == 24 &&
              offsetof(Resume, things) == 32 && sizeof(ClaimedThing) == 16);
static_assert(offsetof(Welcome, session) == 8 && offsetof(Welcome, job) == 16 &&
              offsetof(Welcome, tenant) == 24 && offsetof(Welcome, driver_folder) == 152 &&
              offsetof(Welcome, is_host_of_driver) == 1176 && offsetof(Welcome, count) == 1184 &&
              offsetof(Welcome, devices) == 1192 && sizeof(Welcome) == 2728);
static_assert(sizeof(Cancel) == 8 && sizeof(Waiting) == 8);
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
