#include "sim/table_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>

#include "base/unique_fd.h"

namespace gpumem::sim {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kSize = sizeof(layout::Table);

Error failed(const std::string& path) { return {Code::kInternal, path + ": " + std::strerror(errno)}; }

struct Unmap {
  void operator()(layout::Table* table) const { ::munmap(table, kSize); }
};
using Mapped = std::unique_ptr<layout::Table, Unmap>;

Mapped map(int fd) {
  void* const address = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return Mapped(address == MAP_FAILED ? nullptr : static_cast<layout::Table*>(address));
}

void fill(layout::Table& table, const Machine& machine) {
  table.magic = layout::kMagic;
  table.version = layout::kVersion;
  table.size = kSize;
  table.device_count = static_cast<std::uint32_t>(machine.devices.size());
  table.export_limit = layout::kExports;
  table.devices[layout::kHost].total = std::numeric_limits<std::uint64_t>::max();
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    const Uuid uuid = machine.device_uuid(i);
    std::copy(uuid.begin(), uuid.end(), table.devices[i].uuid);
    table.devices[i].total = machine.devices[i].count;
  }
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&table.mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
}

/// Makes the table under a name of its own and links it to `path`: it appears whole, or another maker's
/// stands.
Result<void> make_table(const Machine& machine, const std::string& path) {
  const std::string folder = machine.data_folder().string();
  if (::mkdir(folder.c_str(), 0777) == 0) ::chmod(folder.c_str(), 0777);
  std::string temporary = path + ".XXXXXX";
  const UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd.valid()) return failed(temporary);
  const bool sized = ::fchmod(fd.get(), 0666) == 0 && ::ftruncate(fd.get(), kSize) == 0;
  const Mapped table = sized ? map(fd.get()) : nullptr;
  if (table) fill(*table, machine);
  const bool linked = table && (::link(temporary.c_str(), path.c_str()) == 0 || errno == EEXIST);
  auto result = linked ? Result<void>() : Result<void>(failed(path));
  ::unlink(temporary.c_str());
  return result;
}

}  // namespace

Result<layout::Table*> map_table(const Machine& machine) {
  const std::string path = machine.data_folder() / "table";
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) {
    if (auto made = make_table(machine, path); !made) return made.error();
    fd.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  }
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0) return failed(path);
  if (status.st_size != static_cast<off_t>(kSize))
    return Error{Code::kInternal, path + ": not of this version"};
  Mapped table = map(fd.get());
  if (!table) return failed(path);
  if (table->magic != layout::kMagic || table->version != layout::kVersion || table->size != kSize ||
      table->device_count != machine.devices.size()) {
    return Error{Code::kInternal, path + ": not of this version"};
  }
  return table.release();
}

void remove_files_unless(const std::string& folder, const std::function<bool(SlotRef)>& is_kept) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const auto slot = parse_extent_name(entry->path().filename().string());
    if (slot && !is_kept(*slot)) ::unlink(entry->path().c_str());
  }
}

}  // namespace gpumem::sim
