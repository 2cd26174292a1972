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
  /// How long connecting and each call may take, and how much longer than its wait a growth may. A broker
  /// that does not answer by then counts as unavailable.
  std::chrono::milliseconds timeout{1'000};
};

/// The figures of one device for this session's tenant.
struct DeviceUsage {
  std::string device;  ///< UUID
  Bytes pool;
  Bytes free;  ///< charged to nobody
  Bytes guarantee;
  Bytes limit;
  Bytes charged;    ///< to the tenant, all its sessions together
  Bytes available;  ///< what the tenant could be granted without waiting
  Bytes pressure;   ///< what the broker asks this session to give back
  /// The deadline of the pressure. Nothing if there is none.
  std::optional<std::chrono::steady_clock::time_point> pressure_deadline{};
};

/// One slice's part of a growth of several slices, as Slice::grow's `target` and GrowOptions::least.
struct GrowStep {
  Slice* slice = nullptr;
  Bytes target;
  Bytes least{};
};

/// This process's connection to the broker. The broker learns its identity from the kernel. Slices and
/// allocators of the session keep it alive. From the first slice, allocator, handler or charge on, a thread
/// of the library answers the broker's requests for memory. It gives back what allocators, and slices with
/// SliceOptions::trim_on_pressure, do not use. Then it calls the handler. If that was not enough, it tells
/// the broker so, and the broker asks other sessions.
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

  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  /// Removes the handler, as on_pressure({}) does.
  ~Session();

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

  /// The figures of every device that the broker lends. Reads shared memory: no call, no lock, about 100 ns.
  Result<std::vector<DeviceUsage>> usage() const;

  /// Makes one empty call, to check that the broker is there and still knows this session.
  Result<void> ping();

  std::uint64_t id() const;
  const std::string& tenant() const;
  /// Where the session's slices find the driver: the environment's GPUMEM_DRIVER_DIR, else the broker's
  /// folder. Empty: the system's search path.
  const std::string& driver_folder() const;

 private:
  friend struct SessionAccess;  ///< the C ABI, within the library
  explicit Session(std::shared_ptr<client::Connection> connection);
  std::shared_ptr<client::Connection> connection_;
};

}  // namespace gpumem
