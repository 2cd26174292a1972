#include "base/system/loader_cache.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include "base/system/small_file.h"

namespace gpumem {
namespace {

// The format of glibc 2.2 and later (sysdeps/generic/dl-cache.h). Caches of glibc before 2.32 have an older
// table in front of this one; all offsets count from the magic word.
constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kHeaderBytes = 48;
#ifdef __aarch64__
constexpr std::int32_t kThisArchitecture = 0x0a03;
#else
constexpr std::int32_t kThisArchitecture = 0x0303;
#endif

struct CacheEntry {
  std::int32_t flags;
  std::uint32_t name;  // offsets of texts
  std::uint32_t path;
  std::uint32_t os_version;
  std::uint64_t hardware;
};
static_assert(sizeof(CacheEntry) == 24);

/// Nothing: there is no such text in the file.
std::optional<std::string_view> text_at(std::string_view file, std::size_t offset) {
  if (offset >= file.size()) return std::nullopt;
  const std::size_t end = file.find('\0', offset);
  if (end == file.npos) return std::nullopt;
  return file.substr(offset, end - offset);
}

}  // namespace

std::vector<std::filesystem::path> libraries_in_cache(std::string_view name,
                                                      const std::filesystem::path& cache) {
  const auto content = read_small_file(cache, std::size_t{64} << 20);
  std::vector<std::filesystem::path> found;
  if (!content) return found;
  const std::size_t begin = content->find(kMagic);
  if (begin == content->npos) return found;
  const std::string_view file = std::string_view(*content).substr(begin);
  std::uint32_t count = 0;
  if (file.size() < kHeaderBytes) return found;
  std::memcpy(&count, file.data() + kMagic.size(), sizeof count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = kHeaderBytes + i * sizeof(CacheEntry);
    if (at + sizeof(CacheEntry) > file.size()) break;
    CacheEntry entry;
    std::memcpy(&entry, file.data() + at, sizeof entry);
    if (entry.flags != kThisArchitecture || text_at(file, entry.name) != name) continue;
    if (const auto path = text_at(file, entry.path)) found.emplace_back(*path);
  }
  return found;
}

}  // namespace gpumem
