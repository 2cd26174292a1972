#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "gpumem/result.h"
#include "shm/pages.h"

// The page of a device: a file of the broker's runtime folder, for monitors. docs/shm-layout.md describes it
// for other languages. It has what `gpumem ps` shows to those who may connect, and they alone may read it.

namespace gpumem {

inline constexpr std::size_t kDevicePageBytes = 16384;
inline constexpr std::size_t kMaxListedProcesses = 1020;
inline constexpr std::uint32_t kDevicePageVersion = 1;
inline constexpr std::uint64_t kDevicePageMagic = 0x3156'4544'4d45'4d47;  // "GMEMDEV1"

/// What a process has of a device. Bytes.
struct ListedProcess {
  std::uint64_t pid;
  std::uint64_t used;  ///< charged to its sessions: leases, contexts, declared memory, memory past the broker
};

/// What the driver's figures of a device do not tell.
struct DeviceListing {
  std::uint64_t idle;           ///< bytes that the broker has created and lends to nobody
  std::uint64_t broker;         ///< its pid
  std::uint64_t pid_namespace;  ///< inode of /proc/self/ns/pid: all pids are of this namespace
  std::uint64_t process_count;
  /// Those with the most memory, if there are more.
  std::array<ListedProcess, kMaxListedProcesses> processes;
};

/// Written by the broker alone, which holds a write lock (F_OFD_SETLK) on the file as long as it lives.
struct DevicePage {
  PageHeader header;
  std::uint64_t sequence;  ///< seqlock over `listing`
  DeviceListing listing;
};

static_assert(std::is_trivially_copyable_v<DevicePage>);
static_assert(offsetof(ListedProcess, pid) == 0 && offsetof(ListedProcess, used) == 8 &&
              sizeof(ListedProcess) == 16);
static_assert(offsetof(DeviceListing, idle) == 0 && offsetof(DeviceListing, broker) == 8 &&
              offsetof(DeviceListing, pid_namespace) == 16 && offsetof(DeviceListing, process_count) == 24 &&
              offsetof(DeviceListing, processes) == 32);
static_assert(offsetof(DevicePage, header) == 0 && offsetof(DevicePage, sequence) == 16 &&
              offsetof(DevicePage, listing) == 24 && sizeof(DevicePage) <= kDevicePageBytes);

/// The name of the page's file in the runtime folder. `uuid`  of the device, as text.
std::string device_page_name(std::string_view uuid);

/// Writes the header, and zeroes the rest, of a page that nobody reads yet.
void initialize(DevicePage& page);

/// A consistent copy.
/// Errors  kFailedPrecondition: another magic, version or size; kUnavailable: the broker stopped in the
///         middle of an update; kInternal: more processes than there is room for.
Result<std::unique_ptr<DeviceListing>> read_listing(const DevicePage& page);

}  // namespace gpumem
