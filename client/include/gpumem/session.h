#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpumem/bytes.h"
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
};

/// This process's connection to the broker, from connect to destruction. The broker knows who it is from
/// the kernel. Its slices keep it alive.
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
  ~Session();

  /// Opens the driver at the first call; a session without slices needs none.
  /// Errors  kNotFound (no driver, no such device), kInvalidArgument, kResourceExhausted (no addresses, too
  ///         many slices), kFailedPrecondition (forked; a driver that is too old or was started before a
  ///         fork), kUnavailable (the broker is gone), kUnauthenticated (it ended the session).
  Result<Slice> open_slice(const SliceOptions& options = {});

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
