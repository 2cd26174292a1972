#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpumem/allocator.h"
#include "gpumem/bytes.h"
#include "gpumem/pressure.h"
#include "gpumem/result.h"
#include "gpumem/slice.h"

namespace gpumem {
namespace client {
class Connection;
}

struct SessionOptions {
  /// Folder of the broker's sockets. Empty: the environment's GPUMEM_RUNTIME_DIR, else /run/gpumemd.
  std::string runtime_folder{};
  std::string label{};  ///< for people, shown by `gpumem ps`
  /// How long connecting and each call that does not wait for memory may take.
  std::chrono::milliseconds timeout{10'000};
};

/// What the broker says of one device, from the side of this session's tenant.
struct DeviceUsage {
  std::string device;  ///< UUID
  Bytes pool;
  Bytes free;  ///< charged to nobody
  Bytes guarantee;
  Bytes limit;
  Bytes charged;    ///< to the tenant, all its sessions together
  Bytes available;  ///< what the tenant could be granted without waiting
  Bytes pressure;   ///< what the broker asks this session to give back
  /// Until when; nothing without pressure.
  std::optional<std::chrono::steady_clock::time_point> pressure_deadline{};
};

/// What a growth of several slices asks of one of them: as Slice::grow's `target` and GrowOptions::least.
struct GrowStep {
  Slice* slice = nullptr;
  Bytes target;
  Bytes least{};
};

/// This process's connection to the broker, from connect to destruction. The broker knows who it is from
/// the kernel. Its slices and allocators keep it alive.
/// From the first slice, allocator, handler or charge on, a thread of the library answers when the broker
/// asks for memory: it gives back what allocators do not use, nor slices with SliceOptions::trim_on_pressure,
/// then calls the handler, and if that was not enough tells the broker that there is no more, so that it asks
/// others.
/// Threads  any.
/// Fork     as Slice. A child may open a session of its own if its parent has only connected so far; once the
///          parent has made a call (a slice, a ping), neither gRPC nor the driver works in its forked
///          children.
/// One that has been moved from answers kFailedPrecondition.
class Session {
 public:
  /// Errors  kUnavailable (no broker there; the message says what to do), kPermissionDenied (the socket's
  ///         group, or refused by the broker), kFailedPrecondition (other version), kInvalidArgument (label
  ///         over 128 bytes), kDeadlineExceeded (the broker does not answer). kFailedPrecondition, too, in a
  ///         forked child whose parent has already called the broker.
  static Result<Session> connect(const SessionOptions& options = {});

  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  /// Removes the handler, as on_pressure({}) does.
  ~Session();

  /// Opens the driver at the first call; a session without slices needs none.
  /// Errors  kNotFound (no driver, no such device), kInvalidArgument, kResourceExhausted (no addresses, too
  ///         many slices), kFailedPrecondition (forked; a driver that is too old or was started before a
  ///         fork), kUnavailable (the broker is gone), kUnauthenticated (it ended the session).
  Result<Slice> open_slice(const SliceOptions& options = {});

  /// Opens a slice that serves blocks of any size, in the order of streams, and grows and shrinks with what
  /// is in use. It answers the broker's pressure with what it can spare.
  /// Errors  as open_slice.
  Result<Allocator> open_allocator(const AllocatorOptions& options = {});

  /// Grows several slices of this session, each of another device, in one request: all steps or nothing.
  /// Answers the committed sizes, step by step. `options.least` stays zero: it is each step's own.
  /// Errors  as Slice::grow; kInvalidArgument, too: no slice, one of another session, two of one device.
  Result<std::vector<Bytes>, GrowError> grow_all(std::span<const GrowStep> steps, GrowOptions options = {});

  /// Has `handler` called when the broker asks for memory that is not had by trimming, in place of the one
  /// before; none: an empty one. The handler before has returned, and is gone, when this returns, unless it
  /// is what calls this: so what a handler uses lives until it has been removed or the session is gone, and
  /// nobody removes it while holding a lock that it takes.
  /// Errors  kFailedPrecondition (forked), kResourceExhausted (no thread).
  Result<void> on_pressure(PressureHandler handler);

  /// Declares what this process holds of `device` (a UUID) past the broker, in all: charged to its tenant, in
  /// place of what was declared before. It may put the tenant in debt, which the broker then asks back.
  /// Errors  kNotFound (no such device), kInvalidArgument (more than the device has), kFailedPrecondition,
  ///         kResourceExhausted (no thread), kUnavailable, kUnauthenticated.
  Result<void> charge(const std::string& device, Bytes bytes);

  /// Figures of every device the broker lends, read from shared memory: no call, no lock, about 100 ns.
  Result<std::vector<DeviceUsage>> usage() const;

  /// One empty call to the broker: whether it is there and still knows this session.
  Result<void> ping();

  std::uint64_t id() const;
  const std::string& tenant() const;
  /// Where the session's slices find the driver: the environment's GPUMEM_DRIVER_DIR, else the broker's
  /// folder. Empty: the system's search path.
  const std::string& driver_folder() const;

 private:
  explicit Session(std::shared_ptr<client::Connection> connection);
  std::shared_ptr<client::Connection> connection_;
};

}  // namespace gpumem
