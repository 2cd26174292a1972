#pragma once
#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "sim/machine/machine.h"

/// The page that all processes of a machine share: /dev/shm/gpumem-sim-ID/table.
/// A slot is in use when its generation is not zero. It is filled before its generation is set and the
/// generation is cleared before anything else, so `used` and the free list can be made anew from the slots
/// whenever a process ends while it holds the mutex.
namespace gpumem::sim::layout {

inline constexpr std::uint64_t kMagic = 0x6d69732d6d757067;  // "gpum-sim"
inline constexpr std::uint32_t kVersion = 2;
inline constexpr std::uint32_t kSlots = 1U << 20;
/// A real machine has one table of so many exported objects (NVIDIA's open kernel modules).
inline constexpr std::uint32_t kExports = 524'288;
/// Stands for the host's memory among the devices: there is as much as the system has.
inline constexpr std::uint32_t kHost = kMaxDevices;
// Slot::flags
inline constexpr std::uint32_t kExported = 1;  ///< other processes may hold it
inline constexpr std::uint32_t kReleased = 2;  ///< its creator holds it no more

struct Device {
  std::uint8_t uuid[16];
  std::uint64_t total;
  std::uint64_t used;
  std::uint64_t withheld;  ///< of the total, available to nobody
};
static_assert(sizeof(Device) == 40);

struct Slot {
  std::uint64_t generation;
  std::uint64_t size;
  std::uint64_t inode;
  std::uint64_t creator_start;
  std::int32_t creator_pid;
  std::uint32_t device;
  std::uint32_t kind;
  std::uint32_t flags;
  std::uint32_t handle_types;
  std::uint32_t next_free;  ///< index + 1; 0 ends the list
  std::int32_t numa_node;   ///< of the host's memory, as the program asked for it
  std::uint32_t reserved;
};
static_assert(sizeof(Slot) == 64 && offsetof(Slot, creator_pid) == 32 && offsetof(Slot, next_free) == 52);

struct Table {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t device_count;
  std::uint64_t size;             ///< of this struct
  std::uint64_t last_generation;  ///< the newest one given out
  std::uint32_t slot_end;         ///< no slot from here on was ever used
  std::uint32_t first_free;       ///< index + 1; 0: none below slot_end
  std::uint32_t exports;          ///< extents that are exported
  std::uint32_t export_limit;     ///< kExports, but for tests
  union {
    pthread_mutex_t mutex;  ///< process-shared and robust
    std::uint8_t mutex_room[80];
  };
  Device devices[kMaxDevices + 1];
  Slot slots[kSlots];
};
static_assert(std::is_trivially_copyable_v<Table> && sizeof(pthread_mutex_t) <= sizeof(Table::mutex_room));
static_assert(offsetof(Table, mutex) == 48 && offsetof(Table, devices) == 128 &&
              offsetof(Table, slots) == 808);

}  // namespace gpumem::sim::layout
