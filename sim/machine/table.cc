#include "sim/machine/table.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>

#include "sim/machine/shared_file.h"

namespace gpumem::sim {

namespace fs = std::filesystem;
namespace {

void fill(layout::Table& table, const Machine& machine) {
  table.magic = layout::kMagic;
  table.version = layout::kVersion;
  table.size = sizeof(layout::Table);
  table.device_count = static_cast<std::uint32_t>(machine.devices.size());
  table.export_limit = layout::kExports;
  table.devices[layout::kHost].total = std::numeric_limits<std::uint64_t>::max();
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    const Uuid uuid = machine.device_uuid(i);
    std::copy(uuid.begin(), uuid.end(), table.devices[i].uuid);
    table.devices[i].total = machine.devices[i].count;
  }
  init_shared_mutex(table.mutex);
}

/// Maps the machine's table, making the file first if it is not there; of several makers one wins. The caller
/// unmaps it. Errors  kInternal: the system refused, or the file is of another version.
Result<layout::Table*> map_table(const Machine& machine) {
  auto mapped = map_shared_file(machine, "table", sizeof(layout::Table),
                                [&](void* page) { fill(*static_cast<layout::Table*>(page), machine); });
  if (!mapped) return mapped.error();
  auto* const table = static_cast<layout::Table*>(*mapped);
  if (table->magic == layout::kMagic && table->version == layout::kVersion &&
      table->size == sizeof(layout::Table) && table->device_count == machine.devices.size()) {
    return table;
  }
  ::munmap(table, sizeof(layout::Table));
  return Error{Code::kInternal, (machine.data_folder() / "table").string() +
                                    ": damaged or of another version; create the machine anew"};
}

ProcessId creator_of(const layout::Slot& slot) { return {slot.creator_pid, slot.creator_start}; }

/// Removes the extent files in `folder` for which `is_kept` is false.
void remove_files_unless(const std::string& folder, const std::function<bool(SlotRef)>& is_kept) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const auto slot = parse_extent_name(entry->path().filename().string());
    if (slot && !is_kept(*slot)) ::unlink(entry->path().c_str());
  }
}

}  // namespace

Result<std::unique_ptr<Table>> Table::open(const Machine& machine) {
  auto shared = map_table(machine);
  if (!shared) return shared.error();
  std::unique_ptr<Table> table(new Table(*shared, machine.data_folder().string() + "/"));
  table->bury_own();
  return table;
}

Table::Table(layout::Table* shared, std::string folder) : shared_(shared), folder_(std::move(folder)) {}

Table::~Table() { ::munmap(shared_, sizeof(layout::Table)); }

Table::Lock::Lock(Table& table) : mutex_(&table.shared_->mutex) {
  if (::pthread_mutex_lock(mutex_) == EOWNERDEAD) {
    table.repair();
    ::pthread_mutex_consistent(mutex_);
  }
}

Table::Lock::~Lock() { ::pthread_mutex_unlock(mutex_); }

Result<Table::Created> Table::create(const Request& request) {
  Created created;
  {
    const Lock lock(*this);
    if (!fits(request)) collect();
    if (!fits(request)) return Error{Code::kResourceExhausted, "the device has too little free memory"};
    const auto index = take_slot();
    if (!index) return Error{Code::kResourceExhausted, "the machine's table is full"};
    created.slot = {*index, ++shared_->last_generation};
    created.fd = create_extent_file(path_of(created.slot));
    struct stat status {};
    if (!created.fd.valid() || ::fstat(created.fd.get(), &status) != 0) {
      const int error = errno;
      free_slot(*index);
      return Error{Code::kInternal, path_of(created.slot) + ": " + std::strerror(error)};
    }
    layout::Slot& slot = shared_->slots[*index];
    slot = {0,
            request.size,
            status.st_ino,
            self_.start,
            self_.pid,
            request.device,
            static_cast<std::uint32_t>(request.kind),
            0,
            request.handle_types,
            0,
            request.numa_node,
            0};
    std::atomic_ref(slot.generation).store(created.slot.generation, std::memory_order_release);
    shared_->devices[request.device].used += request.size;
  }
  if (::ftruncate(created.fd.get(), static_cast<off_t>(request.size)) == 0) return created;
  const Error error{Code::kInternal, std::string("ftruncate: ") + std::strerror(errno)};
  created.fd.reset();
  destroy(created.slot);
  return error;
}

void Table::destroy(SlotRef slot) {
  ::unlink(path_of(slot).c_str());  // the name first: while the slot is there nobody takes the bytes
  const Lock lock(*this);
  if (holds(slot)) free_slot(slot.index);
}

void Table::release(SlotRef slot) {
  const Lock lock(*this);
  if (!holds(slot)) return;
  std::atomic_ref(shared_->slots[slot.index].flags).fetch_or(layout::kReleased);
  if (bury_if_dead(path_of(slot))) free_slot(slot.index);
}

void Table::destroy_if_dead(SlotRef slot) {
  const Lock lock(*this);
  if (holds(slot) && bury_if_dead(path_of(slot))) free_slot(slot.index);
}

bool Table::mark_exported(SlotRef slot) {
  const Lock lock(*this);
  if (!holds(slot)) return false;
  const std::atomic_ref flags(shared_->slots[slot.index].flags);
  if ((flags.load() & layout::kExported) != 0) return true;
  if (shared_->exports >= shared_->export_limit) collect();
  if (shared_->exports >= shared_->export_limit) return false;
  ++shared_->exports;
  flags.fetch_or(layout::kExported);
  return true;
}

std::optional<Table::Opened> Table::open_by_place(SlotRef slot) {
  const Lock lock(*this);
  if (slot.generation == 0 || !holds(slot)) return std::nullopt;
  if (bury_if_dead(path_of(slot))) {
    free_slot(slot.index);
    return std::nullopt;
  }
  UniqueFd fd = open_extent_file(path_of(slot));
  if (!fd.valid()) return std::nullopt;
  return Opened{info(slot.index), std::move(fd)};
}

std::optional<ExtentInfo> Table::identify(int fd) {
  struct stat status {};
  if (fd < 0 || ::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  const auto slot = extent_of(fd);
  if (!slot || slot->index >= layout::kSlots) return std::nullopt;
  // Only the creating file description can take the lock that it already has: a file opened by name cannot.
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) return std::nullopt;
  const Lock lock(*this);
  if (!holds(*slot) || shared_->slots[slot->index].inode != status.st_ino) return std::nullopt;
  return info(slot->index);
}

std::uint64_t Table::used(std::uint32_t device) {
  const Lock lock(*this);
  collect();
  return shared_->devices[device].used;
}

std::uint64_t Table::free(std::uint32_t device) {
  const Lock lock(*this);
  collect();
  return room(device);
}

Result<void> Table::withhold(std::uint32_t device, std::uint64_t size) {
  if (device >= device_count())
    return Error{Code::kInvalidArgument, "the machine has " + std::to_string(device_count()) +
                                             " devices, counted from 0; there is no device " +
                                             std::to_string(device)};
  if (size > total(device))
    return Error{Code::kInvalidArgument,
                 "device " + std::to_string(device) + " has only " + to_string(Bytes{total(device)})};
  const Lock lock(*this);
  shared_->devices[device].withheld = size;
  return {};
}

std::vector<ExtentInfo> Table::extents() {
  const Lock lock(*this);
  collect();
  std::vector<ExtentInfo> found;
  for (std::uint32_t i = 0; i < shared_->slot_end; ++i) {
    if (shared_->slots[i].generation != 0) found.push_back(info(i));
  }
  return found;
}

Uuid Table::uuid(std::uint32_t device) const {
  Uuid uuid;
  std::copy_n(shared_->devices[device].uuid, uuid.size(), uuid.begin());
  return uuid;
}

std::uint64_t Table::room(std::uint32_t device) const {
  const layout::Device& known = shared_->devices[device];
  return Bytes{known.total}.minus({known.withheld}).minus({known.used}).count;
}

std::optional<std::uint32_t> Table::take_slot() {
  if (const std::uint32_t first = shared_->first_free; first != 0) {
    shared_->first_free = shared_->slots[first - 1].next_free;
    return first - 1;
  }
  if (shared_->slot_end == layout::kSlots) collect();
  if (shared_->first_free != 0) return take_slot();
  if (shared_->slot_end == layout::kSlots) return std::nullopt;
  return shared_->slot_end++;
}

/// Takes the charge of a slot in use away, if it is in use, and puts it on the free list.
void Table::free_slot(std::uint32_t index) {
  layout::Slot& slot = shared_->slots[index];
  if (std::exchange(slot.generation, 0) != 0) {
    shared_->devices[slot.device].used -= slot.size;
    shared_->exports -= (slot.flags & layout::kExported) != 0;
  }
  slot.next_free = shared_->first_free;
  shared_->first_free = index + 1;
}

/// Ends extents that no process holds. A creator that lives and holds the first of those that it has not
/// released holds them all: their files need no look.
void Table::collect() {
  std::map<ProcessId, bool> holds_all{{self_, true}};
  for (std::uint32_t i = 0; i < shared_->slot_end; ++i) {
    const layout::Slot& slot = shared_->slots[i];
    if (slot.generation == 0) continue;
    const ProcessId creator = creator_of(slot);
    const bool is_released = (slot.flags & layout::kReleased) != 0;
    const auto known = is_released ? holds_all.end() : holds_all.find(creator);
    if (known != holds_all.end() && known->second) continue;
    const bool is_dead = bury_if_dead(path_of({i, slot.generation}));
    if (is_dead) free_slot(i);
    if (!is_released) holds_all.try_emplace(creator, !is_dead && is_alive(creator));
  }
}

/// Ends what this process held as another program, before exec.
void Table::bury_own() {
  const Lock lock(*this);
  for (std::uint32_t i = 0; i < shared_->slot_end; ++i) {
    const layout::Slot& slot = shared_->slots[i];
    if (slot.generation == 0 || creator_of(slot) != self_) continue;
    if (bury_if_dead(path_of({i, slot.generation}))) free_slot(i);
  }
}

/// Makes `used`, `exports` and the free list anew from the slots, and removes files that have no slot.
void Table::repair() {
  for (auto& device : shared_->devices) device.used = 0;
  shared_->exports = 0;
  shared_->first_free = 0;
  shared_->slot_end = std::min(shared_->slot_end, layout::kSlots);
  for (std::uint32_t i = shared_->slot_end; i-- > 0;) {
    layout::Slot& slot = shared_->slots[i];
    if (slot.generation != 0 && slot.device <= layout::kHost) {
      shared_->devices[slot.device].used += slot.size;
      shared_->exports += (slot.flags & layout::kExported) != 0;
    } else {
      slot.generation = 0;
      free_slot(i);
    }
  }
  remove_files_unless(folder_, [this](SlotRef slot) { return holds(slot); });
}

ExtentInfo Table::info(std::uint32_t index) const {
  const layout::Slot& slot = shared_->slots[index];
  return {.slot = {index, slot.generation},
          .creator = creator_of(slot),
          .device = slot.device,
          .kind = static_cast<Kind>(slot.kind),
          .size = slot.size,
          .handle_types = slot.handle_types,
          .numa_node = slot.numa_node,
          .exported = (slot.flags & layout::kExported) != 0};
}

bool Table::holds(SlotRef slot) const {
  return slot.index < layout::kSlots && shared_->slots[slot.index].generation == slot.generation;
}

}  // namespace gpumem::sim
