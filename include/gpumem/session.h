#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "gpumem/allocator.h"
#include "gpumem/bytes.h"
#include "gpumem/detail/c.h"
#include "gpumem/detail/growth.h"
#include "gpumem/detail/listings.h"
#include "gpumem/detail/pressure.h"
#include "gpumem/options.h"
#include "gpumem/pressure.h"
#include "gpumem/result.h"
#include "gpumem/slice.h"
#include "gpumem/statistics.h"

// The classes are headers over the functions of gpumem.h: no type of a standard library passes into libgpumem
// or out of it. So programs of any compiler and standard library can use them.

namespace gpumem {

/// One slice's part of a growth of several slices, as Slice::grow's `target` and GrowOptions::least.
struct GrowStep {
  Slice* slice = nullptr;
  Bytes target;
  Bytes least{};
};

/// This process's connection to the broker. The broker learns its identity from the kernel. Slices and
/// allocators of the session keep it alive. From the first slice, allocator, handler, charge or job on, a
/// thread of the library answers the broker's requests for memory. It gives back what allocators, and slices
/// with SliceOptions::trim_on_pressure, do not use. Then it calls the handler. If that was not enough, it
/// tells the broker so, and the broker asks other sessions.
/// Threads  any.
/// Fork     as Slice. A child may open a session of its own at any time. Slices and allocators in it need the
///          driver, which works in no child of a process that has started it.
/// A moved-from session returns kFailedPrecondition.
class Session {
 public:
  /// Errors  kUnavailable (no broker there; the message says what to do), kPermissionDenied (the socket's
  ///         group, or refused by the broker), kFailedPrecondition (other version), kInvalidArgument (label
  ///         over 128 bytes). A broker that does not answer is kUnavailable, too.
  static Result<Session> connect(const SessionOptions& options = {});

  Session(Session&&) noexcept = default;
  Session& operator=(Session&&) noexcept = default;
  /// Removes the handler, as on_pressure({}) does.
  ~Session() = default;

  /// Opens the driver at the first call; a session without slices needs none.
  /// Errors  kNotFound (no driver, no such device), kInvalidArgument, kResourceExhausted (no addresses, too
  ///         many slices), kFailedPrecondition (forked; a driver that is too old or was started before a
  ///         fork), kUnavailable (the broker is gone), kUnauthenticated (it ended the session).
  Result<Slice> open_slice(const SliceOptions& options = {});

  /// Opens a slice that serves blocks of any size in stream order, and that grows and shrinks with its use.
  /// It answers the broker's pressure with unused memory.
  /// Errors  as open_slice.
  Result<Allocator> open_allocator(const AllocatorOptions& options = {});

  /// Grows several slices of this session, each on a different device, in one request: all steps or nothing.
  /// Returns the committed sizes, step by step. `options.least` must be zero, because each step has its own.
  /// Errors  as Slice::grow; kInvalidArgument, too: no slice, one of another session, two of one device.
  Result<std::vector<Bytes>, GrowError> grow_all(std::span<const GrowStep> steps, GrowOptions options = {});

  /// Maps the memory that `handle` names. Another session of the same tenant made it (Slice::export_handle).
  /// Errors  kNotFound (expired, used up, given back, or another tenant's; a device that this process does
  ///         not see), kInvalidArgument (no handle of gpumem's), kUnavailable (the memory is being asked
  ///         back, or the broker is gone), kResourceExhausted (over 1,024 imports, no descriptors, no
  ///         addresses), kPermissionDenied (the broker could not end this process), kFailedPrecondition,
  ///         kUnauthenticated.
  Result<Import> import_handle(const IpcHandle& handle);

  /// Maps a region (Slice::publish).
  /// Blocks  for `options.wait` at most, until one of the name is published.
  /// Errors  kNotFound (none for this session's tenant, none newer; a device that this process does not
  ///         see), kDeadlineExceeded (waited in vain), kCancelled (by `options.stop`), kResourceExhausted
  ///         (this session waits for 64), kPermissionDenied (adopts another tenant's), kFailedPrecondition
  ///         (adopts one that is not kept, or that a process has), kInvalidArgument (version and newer_than),
  ///         others as import_handle.
  Result<Region> map_region(const std::string& name, const RegionOptions& options = {});
  /// Maps the newest region of this session's tenant with this name. If there is none, and nobody else has
  /// reserved the name, reserves it: this session is to publish the region, which fulfils the reservation. It
  /// ends with release_reservation, after its life and with the session, too. Then one of those who wait for
  /// it has the next. A process that publishes the name without a reservation is not refused.
  /// Blocks  for `options.wait` at most, for a name that another process has reserved.
  /// Errors  kNotFound (no wait, and another process has reserved it; a device that this process does not
  ///         see), kDeadlineExceeded (waited in vain), kCancelled (by `options.stop`), kResourceExhausted
  ///         (this session waits for 64, or has reserved 64), others as import_handle.
  Result<std::variant<Region, Reservation>> map_or_reserve(const std::string& name,
                                                           const ReserveOptions& options = {});
  /// This session does not publish what it has reserved.
  /// Errors  kNotFound (it has been published, or the reservation has ended), kUnavailable, kUnauthenticated,
  ///         kFailedPrecondition.
  Result<void> release_reservation(Reservation reservation);
  /// Ends a region of this session's tenant: it cannot be mapped any more. Existing mappings stay.
  /// `version`  zero for the newest.
  /// Errors     kNotFound, kUnavailable, kUnauthenticated, kFailedPrecondition.
  Result<void> remove_region(const std::string& name, std::uint64_t version = 0);

  /// Sets the handler that is called when the broker asks for more memory than trimming yields. It replaces
  /// the previous handler; an empty one removes it. When this returns, the previous handler has returned and
  /// is destroyed, unless that handler calls this. So whatever a handler uses must live until the handler is
  /// removed or the session ends, and a caller must not hold a lock that the handler takes.
  /// Errors  kFailedPrecondition (forked), kResourceExhausted (no thread).
  Result<void> on_pressure(PressureHandler handler);

  /// Declares how much memory of `device` (a UUID) this process holds past the broker, in total. It is
  /// charged to the tenant and replaces the previous declaration. It may put the tenant in debt, which the
  /// broker then asks back.
  /// Errors  kNotFound (no such device), kInvalidArgument (more than the device has), kFailedPrecondition,
  ///         kResourceExhausted (no thread), kUnavailable, kUnauthenticated.
  Result<void> charge(const std::string& device, Bytes bytes);

  /// The figures of every device that the broker lends. Reads shared memory: no call to the broker.
  Result<std::vector<DeviceUsage>> usage() const;

  /// Makes a job, which this session owns and is not in. Returns its number: sessions of the same user and
  /// tenant whose GPUMEM_JOB it is join the job. It lives as long as this session and those that have joined.
  /// Errors  kFailedPrecondition (the session owns a job, or is in one), kInvalidArgument (label, two
  ///         limits), kResourceExhausted (no thread), kUnavailable, kUnauthenticated.
  Result<std::uint64_t> begin_job(const JobOptions& options);
  /// Reserves `bytes` of `device` (a UUID) for the job that this session owns; less, if the job can never
  /// have as much. The bytes are charged to the tenant, and growths of the job's sessions come from them
  /// first. The reservation ends with this session. Others get the unused part of it: for guarantees at once,
  /// else once the job has not used it for two minutes.
  /// Blocks  for `wait` at most.
  /// Errors  as Slice::grow; kNotFound (no job, no such device); kCancelled (by `stop`).
#ifdef __cpp_lib_jthread
  Result<void> reserve_for_job(const std::string& device, Bytes bytes, std::chrono::milliseconds wait,
                               std::stop_token stop = {});
#else
  Result<void> reserve_for_job(const std::string& device, Bytes bytes, std::chrono::milliseconds wait);
#endif
  /// What the job that this session owns has used since it began.
  /// Errors  kNotFound (it owns none), kUnavailable, kUnauthenticated, kFailedPrecondition.
  Result<JobAccount> job_account();

  /// Makes one empty call, to check that the broker is there and still knows this session.
  Result<void> ping();

  std::uint64_t id() const { return gpumem_session_id(handle_.get()); }
  /// The job that the session has joined. Zero: none.
  std::uint64_t job() const { return gpumem_session_job(handle_.get()); }
  const std::string& tenant() const { return tenant_; }
  /// Where the session's slices find the driver: the environment's GPUMEM_DRIVER_DIR, else the broker's
  /// folder. Empty: the system's search path.
  const std::string& driver_folder() const { return driver_folder_; }

  /// This session's handle for the C interface. This object owns it: it must not be closed or freed. Null:
  /// moved from.
  gpumem_session* c_handle() const { return handle_.get(); }

 private:
  explicit Session(gpumem_session* handle)
      : handle_(handle),
        tenant_(detail::cpp_text(gpumem_session_tenant(handle))),
        driver_folder_(detail::cpp_text(gpumem_session_driver_folder(handle))) {}
  static Error moved_from() { return detail::moved_from("session"); }

  detail::Handle<gpumem_session> handle_;
  std::string tenant_;
  std::string driver_folder_;
};

inline Result<Session> Session::connect(const SessionOptions& options) {
  gpumem_session_options given = GPUMEM_SESSION_OPTIONS_INIT;
  given.runtime_folder = detail::c_text(options.runtime_folder);
  given.label = detail::c_text(options.label);
  given.timeout_ms = std::max<std::int64_t>(options.timeout.count(), 1);
  given.no_job = !options.join_job;
  gpumem_session* handle = nullptr;
  const gpumem_status status = gpumem_session_connect(&given, &handle);
  if (status != GPUMEM_OK) return detail::last_error(status);
  return Session(handle);
}

inline Result<Slice> Session::open_slice(const SliceOptions& options) {
  if (!handle_) return moved_from();
  gpumem_slice_options given = GPUMEM_SLICE_OPTIONS_INIT;
  given.device = detail::c_text(options.device);
  given.limit = options.limit.count;
  given.label = detail::c_text(options.label);
  given.trim_on_pressure = options.trim_on_pressure;
  given.pinned = options.pinned;
  gpumem_slice* slice = nullptr;
  const gpumem_status status = gpumem_slice_open(handle_.get(), &given, &slice);
  if (status != GPUMEM_OK) return detail::last_error(status);
  return Slice(slice);
}

inline Result<Allocator> Session::open_allocator(const AllocatorOptions& options) {
  if (!handle_) return moved_from();
  gpumem_allocator_options given = GPUMEM_ALLOCATOR_OPTIONS_INIT;
  given.device = detail::c_text(options.device);
  given.limit = options.limit.count;
  given.label = detail::c_text(options.label);
  given.wait_ms = detail::wait_ms(options.wait);
  given.idle_ms = options.idle.count() > 0 ? options.idle.count() : GPUMEM_AT_ONCE;
  given.pageable = options.pageable;
  gpumem_allocator* allocator = nullptr;
  const gpumem_status status = gpumem_allocator_open(handle_.get(), &given, &allocator);
  if (status != GPUMEM_OK) return detail::last_error(status);
  return Allocator(allocator);
}

inline Result<std::vector<Bytes>, GrowError> Session::grow_all(std::span<const GrowStep> steps,
                                                               GrowOptions options) {
  if (!handle_) return GrowError(moved_from());
  std::vector<gpumem_grow_step> given;
  given.reserve(steps.size());
  for (const GrowStep& step : steps) {
    given.push_back(GPUMEM_GROW_STEP_INIT);
    if (step.slice != nullptr) given.back().slice = step.slice->handle_.get();
    given.back().target = step.target.count;
    given.back().least = step.least.count;
  }
  const detail::GrowthOptions how(options);
  gpumem_status status = how.status();
  if (status == GPUMEM_OK) {
    status = gpumem_session_grow_all(handle_.get(), given.data(), given.size(), how.get());
  }
  if (status != GPUMEM_OK) return detail::last_grow_error(status);
  std::vector<Bytes> committed;
  committed.reserve(given.size());
  for (const gpumem_grow_step& step : given) committed.push_back({step.committed});
  return committed;
}

inline Result<Import> Session::import_handle(const IpcHandle& handle) {
  if (!handle_) return moved_from();
  gpumem_import* import = nullptr;
  const gpumem_status status = gpumem_import_handle(handle_.get(), &handle, &import);
  if (status != GPUMEM_OK) return detail::last_error(status);
  return Import(import);
}

inline Result<Region> Session::map_region(const std::string& name, const RegionOptions& options) {
  if (!handle_) return moved_from();
  gpumem_region_options given = GPUMEM_REGION_OPTIONS_INIT;
  given.owner = options.owner.c_str();
  given.version = options.version;
  given.newer_than = options.newer_than;
  given.pinned = options.pinned;
  given.writable = options.writable;
  given.adopt = options.adopt;
  if (!options.device.empty()) given.device = options.device.c_str();
  std::vector<const char*> access;
  for (const std::string& peer : options.access) access.push_back(peer.c_str());
  given.access = access.data();
  given.access_count = access.size();
  given.wait_ms = options.wait.count();
#ifdef __cpp_lib_jthread
  const detail::Canceller canceller(options.stop);
  if (canceller.status() != GPUMEM_OK) return detail::last_error(canceller.status());
  given.canceller = canceller.get();
#endif
  gpumem_import* import = nullptr;
  const gpumem_status status = gpumem_map_region(handle_.get(), name.c_str(), &given, &import);
  if (status != GPUMEM_OK) return detail::last_error(status);
  return Region(import);
}

inline Result<std::variant<Region, Reservation>> Session::map_or_reserve(const std::string& name,
                                                                         const ReserveOptions& options) {
  if (!handle_) return moved_from();
  gpumem_reserve_options given = GPUMEM_RESERVE_OPTIONS_INIT;
  given.writable = options.writable;
  given.wait_ms = options.wait.count();
  given.life_ms = options.life.count();
#ifdef __cpp_lib_jthread
  const detail::Canceller canceller(options.stop);
  if (canceller.status() != GPUMEM_OK) return detail::last_error(canceller.status());
  given.canceller = canceller.get();
#endif
  gpumem_import* import = nullptr;
  Reservation reservation;
  const gpumem_status status =
      gpumem_map_or_reserve(handle_.get(), name.c_str(), &given, &import, &reservation.number);
  if (status != GPUMEM_OK) return detail::last_error(status);
  using Outcome = std::variant<Region, Reservation>;
  return import != nullptr ? Outcome(Region(import)) : Outcome(reservation);
}

inline Result<void> Session::release_reservation(Reservation reservation) {
  if (!handle_) return moved_from();
  return detail::done(gpumem_release_reservation(handle_.get(), reservation.number));
}

inline Result<void> Session::remove_region(const std::string& name, std::uint64_t version) {
  if (!handle_) return moved_from();
  return detail::done(gpumem_remove_region(handle_.get(), name.c_str(), version));
}

inline Result<void> Session::on_pressure(PressureHandler handler) {
  if (!handle_) return moved_from();
  if (!handler) return detail::done(gpumem_session_on_pressure(handle_.get(), nullptr, nullptr));
  auto box = std::make_unique<detail::HandlerBox>(std::move(handler));
  return detail::done(gpumem_session_on_pressure_owned(handle_.get(), detail::HandlerBox::call, box.release(),
                                                       detail::HandlerBox::release));
}

inline Result<void> Session::charge(const std::string& device, Bytes bytes) {
  if (!handle_) return moved_from();
  return detail::done(gpumem_session_charge(handle_.get(), device.c_str(), bytes.count));
}

inline Result<std::vector<DeviceUsage>> Session::usage() const {
  if (!handle_) return moved_from();
  detail::Listing<gpumem_usage, DeviceUsage> devices(detail::usage_of);
  const gpumem_status status = gpumem_session_usage(handle_.get(), devices.visitor, &devices);
  if (status != GPUMEM_OK) return detail::last_error(status);
  return devices.take();
}

inline Result<std::uint64_t> Session::begin_job(const JobOptions& options) {
  if (!handle_) return moved_from();
  gpumem_job_options given = GPUMEM_JOB_OPTIONS_INIT;
  given.label = detail::c_text(options.label);
  given.limit = options.limit.count;
  given.limit_points = options.limit_points;
  given.host_limit = options.host_limit.count;
  given.host_limit_points = options.host_limit_points;
  std::uint64_t job = 0;
  const gpumem_status status = gpumem_session_begin_job(handle_.get(), &given, &job);
  if (status != GPUMEM_OK) return detail::last_error(status);
  return job;
}

#ifdef __cpp_lib_jthread
inline Result<void> Session::reserve_for_job(const std::string& device, Bytes bytes,
                                             std::chrono::milliseconds wait, std::stop_token stop) {
  const detail::GrowthOptions how({.wait = wait, .least = {}, .stop = std::move(stop)});
#else
inline Result<void> Session::reserve_for_job(const std::string& device, Bytes bytes,
                                             std::chrono::milliseconds wait) {
  const detail::GrowthOptions how({.wait = wait, .least = {}});
#endif
  if (!handle_) return moved_from();
  if (how.status() != GPUMEM_OK) return detail::last_error(how.status());
  return detail::done(gpumem_session_reserve_for_job(handle_.get(), device.c_str(), bytes.count, how.get()));
}

inline Result<JobAccount> Session::job_account() {
  if (!handle_) return moved_from();
  gpumem_job_account account = GPUMEM_JOB_ACCOUNT_INIT;
  const gpumem_status status = gpumem_session_job_account(handle_.get(), &account);
  if (status != GPUMEM_OK) return detail::last_error(status);
  return JobAccount{{account.peak}, std::chrono::milliseconds(account.waited_ms), account.denied};
}

inline Result<void> Session::ping() {
  if (!handle_) return moved_from();
  return detail::done(gpumem_session_ping(handle_.get()));
}

}  // namespace gpumem
