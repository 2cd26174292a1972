#pragma once
#include <version>
#ifdef __cpp_lib_jthread
#include <stop_token>
#endif
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpumem.h"
#include "gpumem/bytes.h"

// Options of sessions, slices, allocators and their calls.

namespace gpumem {

/// A CUstream or cudaStream_t in value. Null and 1: the legacy default stream; 2: the calling thread's own.
using StreamHandle = void*;

struct SessionOptions {
  /// Folder of the broker's sockets. Empty: the environment's GPUMEM_RUNTIME_DIR, else /run/gpumemd.
  std::string runtime_folder{};
  std::string label{};  ///< for people, shown by `gpumem ps`; empty: the environment's GPUMEM_NAME
  /// How long connecting and each call may take, and how much longer than its wait a growth may. A broker
  /// that does not answer by then counts as unavailable.
  std::chrono::milliseconds timeout{1'000};
  /// The session joins the job of the environment's GPUMEM_JOB, and GPUMEM_LIMIT bounds each of its slices.
  /// False: neither.
  bool join_job = true;
};

/// The memory of a command, for all its processes together.
struct JobOptions {
  std::string label{};                  ///< for people; at most 128 bytes
  Bytes limit{};                        ///< on each device; zero: none but the tenant's
  std::uint64_t limit_points = 0;       ///< instead: hundredths of a percent of what the tenant can have
  Bytes host_limit{};                   ///< of the host store, lent or pinned; zero: none but the tenant's
  std::uint64_t host_limit_points = 0;  ///< instead, as limit_points
};

struct SliceOptions {
  /// UUID, or `gpu0` by its place in `gpumem status`. Empty: the first that broker and process both see.
  /// `host`: the host store, whose memory is at addresses of this process.
  std::string device{};
  Bytes limit{};        ///< zero: none but the tenant's, as it is at any time
  std::string label{};  ///< for people, shown by `gpumem ps`
  /// When the broker asks for memory, the library may give back what lies beyond Slice::set_in_use without
  /// asking the program. False: the figure is only shown to people.
  bool trim_on_pressure = false;
  /// Of the host store: the memory is pinned for all devices of this process, which must have a context.
  bool pinned = false;
};

struct GrowOptions {
  /// How long to wait for memory that others hold now. Zero: not at all. Nothing: as long as the
  /// environment's GPUMEM_WAIT says, else not at all.
  std::optional<std::chrono::milliseconds> wait{};
  /// The committed size that is enough if the whole target is not available. Zero: the target.
  Bytes least{};
#ifdef __cpp_lib_jthread
  /// Cancels the growth. It then returns kCancelled, and nothing has changed. Only where the standard library
  /// has std::stop_token (libc++: from version 20 on).
  std::stop_token stop{};
#endif
};

struct AllocatorOptions {
  /// UUID, or `gpu0` by its place in `gpumem status`. Empty: the first that broker and process both see.
  /// `host`: the host store, whose blocks are memory of the machine.
  std::string device{};
  Bytes limit{};        ///< zero: none but the tenant's, as it is at any time
  std::string label{};  ///< for people, shown by `gpumem ps`
  /// How long an allocation may wait for memory that others hold now. Zero and nothing: as of GrowOptions.
  std::optional<std::chrono::milliseconds> wait{};
  /// Memory that has been idle for this long is returned to the broker.
  std::chrono::milliseconds idle{2'000};
  /// Of the host store: the memory is not pinned, and the process needs no driver. An error where the driver
  /// allocates the store.
  bool pageable = false;
};

struct ExportOptions {
  /// How long the handle can be redeemed; at most 24 hours. Zero: a minute.
  std::chrono::milliseconds life{0};
  /// How often it can be redeemed.
  std::uint64_t uses = 1;
};

/// The tenants that may map a region, besides its publisher.
enum class Sharing {
  kPrivate = GPUMEM_SHARING_PRIVATE,  ///< nobody
  kGroup = GPUMEM_SHARING_GROUP,      ///< all tenants within the publisher's parent tenant
  kPublic = GPUMEM_SHARING_PUBLIC,    ///< everybody who may connect to the broker
  kNamed = GPUMEM_SHARING_NAMED,      ///< the named tenants, and all tenants within them
};

struct PublishOptions {
  Sharing sharing = Sharing::kPrivate;
  std::vector<std::string> readers;  ///< with kNamed: tenants, 8 at most
  /// So many of the region's last bytes say what is in it. Readers get the number; the broker does not read
  /// them.
  Bytes layout{};
  /// Of the layout, for readers to compare.
  std::array<unsigned char, 32> digest{};
  /// Zero: as long as its memory.
  std::chrono::milliseconds life{0};
  /// The region outlives the processes that have its memory, at its tenant's expense.
  bool keep = false;
  /// Of a kept one: it ends so long after the last process has left it. Zero: it does not.
  std::chrono::milliseconds linger{0};
  /// Nobody writes to the region from now on. It is mapped for reading alone. The extents
  /// that it lies in are readable only in the publisher, too, with whatever else they hold, until they are
  /// given back.
  bool sealed = false;
};

struct RegionOptions {
  std::string owner;          ///< the tenant that has published it; empty: this session's
  std::uint64_t version = 0;  ///< zero: the newest
  /// Lets this process write, too: for cooperating processes of its tenant. Others see what it writes.
  bool writable = false;
  /// A kept region that no process has any more is this session's from now on: it lives as long as its
  /// memory.
  bool adopt = false;
  /// UUID, or `host`: of those regions of the name whose memory is of this device. Empty: of all.
  std::string device{};
  /// UUIDs of other devices that use the memory, too, from peer to peer.
  std::vector<std::string> access{};
  /// With version zero: a newer one than this. Zero: any.
  std::uint64_t newer_than = 0;
  /// Of memory of the host store: pins it for all devices of this process, which must have a context. Where
  /// the driver pins nothing that is mapped for reading, the region is mapped without (Region::is_pinned).
  bool pinned = false;
  /// How long to wait for the newest version to be published. Zero: not at all.
  std::chrono::milliseconds wait{0};
#ifdef __cpp_lib_jthread
  /// Calls the wait off: kCancelled.
  std::stop_token stop{};
#endif
};

struct ReserveOptions {
  /// As of RegionOptions, of what is mapped.
  bool writable = false;
  /// How long to wait for what another process has reserved. Zero: not at all.
  std::chrono::milliseconds wait{0};
  /// The reservation ends so long after; 7 days at most. Zero: 10 minutes.
  std::chrono::milliseconds life{0};
#ifdef __cpp_lib_jthread
  /// Calls the wait off: kCancelled.
  std::stop_token stop{};
#endif
};

/// Which version of a region that was unmapped is mapped again.
struct RemapOptions {
  bool newest = false;  ///< the newest of the device, of the same layout; else the one that was mapped before
};

/// A name for blocks in a snapshot: Allocator::tag.
struct Tag {
  std::uint8_t number = 0;  ///< zero: no name
};

struct Placement {
  Tag tag{};
  /// Addresses, without memory, reserved after the block for Allocator::extend. Zero: none.
  Bytes room{};
};

}  // namespace gpumem
