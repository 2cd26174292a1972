#include "sim/machine/table_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>

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

}  // namespace

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

void remove_files_unless(const std::string& folder, const std::function<bool(SlotRef)>& is_kept) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const auto slot = parse_extent_name(entry->path().filename().string());
    if (slot && !is_kept(*slot)) ::unlink(entry->path().c_str());
  }
}

}  // namespace gpumem::sim
