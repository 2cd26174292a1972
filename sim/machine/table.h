#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/system/unique_fd.h"
#include "gpumem/result.h"
#include "sim/machine/extent_file.h"
#include "sim/machine/machine.h"
#include "sim/machine/process.h"
#include "sim/machine/table_layout.h"

namespace gpumem::sim {

enum class Kind : std::uint32_t { kMemory = 1, kContext = 2 };

/// Beside an extent's handle types: it was made for GPUDirect RDMA.
inline constexpr std::uint32_t kDirectAccess = std::uint32_t{1} << 31;

/// What is known of one extent.
struct ExtentInfo {
  SlotRef slot;
  ProcessId creator;
  std::uint32_t device = 0;  ///< index in the machine, or layout::kHost
  Kind kind = Kind::kMemory;
  std::uint64_t size = 0;
  std::uint32_t handle_types = 0;
  std::int32_t numa_node = 0;  ///< only of layout::kHost
  bool exported = false;
};

/// The memory of a machine's devices as all its processes see it: who holds which extent, and the bytes used.
/// Invariant: `used` of a device is the sum of its extents' sizes and never grows above its total less what
/// is withheld, whenever the mutex is free; a process that ends while holding the mutex leaves that to the
/// next one that takes it. Threads: any, in any number of processes.
class Table {
 public:
  /// Opens the machine's table, making it first if it is not there.
  static Result<std::unique_ptr<Table>> open(const Machine& machine);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  struct Request {
    std::uint32_t device;
    Kind kind;
    std::uint64_t size;
    std::uint32_t handle_types;
    std::int32_t numa_node = 0;
  };
  struct Created {
    SlotRef slot;
    UniqueFd fd;  ///< the file description whose lock says that the extent lives; sized, zero, sparse
  };
  /// Charges the device and creates the extent, or changes nothing. Dead extents are collected if need be.
  /// Errors  kResourceExhausted: it does not fit; kInternal: the system refused the file.
  Result<Created> create(const Request& request);

  /// Ends an extent that no other process can hold: removes its name, uncharges it. Close its fd before.
  void destroy(SlotRef slot);
  /// Tells that its creator, this process, holds the extent no more; ends it if no other process does.
  void release(SlotRef slot);
  /// Ends the extent if no process holds it any more.
  void destroy_if_dead(SlotRef slot);
  /// From now on other processes may hold the extent. Call before a descriptor of it is handed out.
  /// False, with nothing changed, if the machine's table of exported objects is full.
  bool mark_exported(SlotRef slot);

  struct Opened {
    ExtentInfo info;
    UniqueFd fd;  ///< keeps the extent alive
  };
  /// Opens an extent of any process by its place, as legacy IPC does. Nothing if no process holds it any
  /// more.
  std::optional<Opened> open_by_place(SlotRef slot);

  /// The extent that `fd` refers to, or nothing if it is no living extent of this machine. Any descriptor is
  /// safe.
  std::optional<ExtentInfo> identify(int fd);

  /// Ends all dead extents, then tells the bytes used on `device`.
  std::uint64_t used(std::uint32_t device);
  /// Ends all dead extents, then lists the others.
  std::vector<ExtentInfo> extents();

  /// Ends all dead extents, then tells the bytes that can still be had on `device`.
  std::uint64_t free(std::uint32_t device);
  /// From now on so much less of `device` is to be had, until the next such call; what is in use stays in
  /// use, so that `used` may exceed what is left. Errors  kInvalidArgument: no such device; more than its
  /// total.
  Result<void> withhold(std::uint32_t device, std::uint64_t size);

  std::uint32_t device_count() const { return shared_->device_count; }
  std::uint64_t total(std::uint32_t device) const { return shared_->devices[device].total; }
  Uuid uuid(std::uint32_t device) const;
  /// Where the machine's files lie; ends with a slash.
  const std::string& folder() const { return folder_; }

  /// Holds the mutex of all processes; repairs the table if the last holder died.
  class Lock {
   public:
    explicit Lock(Table& table);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    pthread_mutex_t* mutex_;
  };
  /// The raw page, for tests of the repair.
  layout::Table& raw() { return *shared_; }

 private:
  Table(layout::Table* shared, std::string folder);

  std::string path_of(SlotRef slot) const { return folder_ + extent_name(slot); }
  std::uint64_t room(std::uint32_t device) const;
  bool fits(const Request& request) const { return request.size <= room(request.device); }
  std::optional<std::uint32_t> take_slot();
  void free_slot(std::uint32_t index);
  void collect();
  void bury_own();
  void repair();
  ExtentInfo info(std::uint32_t index) const;
  bool holds(SlotRef slot) const;

  layout::Table* const shared_;
  const std::string folder_;  ///< ends with a slash
  const ProcessId self_ = this_process();
};

}  // namespace gpumem::sim
