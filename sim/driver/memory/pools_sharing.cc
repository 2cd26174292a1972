#include "sim/driver/memory/pools_sharing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <type_traits>

namespace gpumem::sim {
namespace {

constexpr std::uint64_t kPoolMagic = 0x6d69732d6c6f6f70;     // "pool-sim"
constexpr std::uint64_t kPointerMagic = 0x6d69732d74706f70;  // "popt-sim"
constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

struct Page {
  std::uint64_t magic;
  SharedPool pool;
  char folder[256];  ///< the machine's
};
static_assert(std::is_trivially_copyable_v<Page>);

struct Data {
  std::uint64_t magic;
  PoolId pool;
  std::uint64_t generation;
  std::uint64_t offset, size;
  std::uint32_t index;
};
static_assert(std::is_trivially_copyable_v<Data> && sizeof(Data) <= sizeof(CUmemPoolPtrExportData));

Page page_of(const SharedPool& pool, const std::string& folder) {
  Page page;
  std::memset(static_cast<void*>(&page), 0, sizeof page);
  page.magic = kPoolMagic;
  page.pool = pool;
  folder.copy(page.folder, sizeof page.folder - 1);
  return page;
}

}  // namespace

UniqueFd describe_pool(const SharedPool& pool, const std::string& folder) {
  UniqueFd fd =
      above_standard_streams(UniqueFd(::memfd_create("gpumem-sim-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  const Page page = page_of(pool, folder);
  const bool is_written = fd.valid() && ::write(fd.get(), &page, sizeof page) == sizeof page &&
                          ::fcntl(fd.get(), F_ADD_SEALS, kSeals) == 0;
  if (!is_written) fd.reset();
  return fd;
}

std::optional<SharedPool> read_pool(int fd, const std::string& folder) {
  // Seals tell a memory file, which is read without blocking, from everything else.
  Page page;
  if (fd < 0 || ::fcntl(fd, F_GET_SEALS) != kSeals) return std::nullopt;
  if (::pread(fd, &page, sizeof page, 0) != sizeof page || page.magic != kPoolMagic) return std::nullopt;
  const Page expected = page_of(page.pool, folder);
  const bool is_ours = std::memcmp(page.folder, expected.folder, sizeof page.folder) == 0;
  return is_ours ? std::optional(page.pool) : std::nullopt;
}

CUmemPoolPtrExportData pack(const PoolPointer& pointer) {
  const Data data{.magic = kPointerMagic,
                  .pool = pointer.pool,
                  .generation = pointer.slot.generation,
                  .offset = pointer.offset,
                  .size = pointer.size,
                  .index = pointer.slot.index};
  CUmemPoolPtrExportData packed{};
  std::memcpy(packed.reserved, &data, sizeof data);
  return packed;
}

std::optional<PoolPointer> unpack(const CUmemPoolPtrExportData& packed) {
  Data data;
  std::memcpy(&data, packed.reserved, sizeof data);
  if (data.magic != kPointerMagic) return std::nullopt;
  return PoolPointer{data.pool, {data.index, data.generation}, data.offset, data.size};
}

}  // namespace gpumem::sim
