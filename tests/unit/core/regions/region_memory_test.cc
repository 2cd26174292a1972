// The memory of the broker that the regions of one tenant take, at most.
#include <gtest/gtest.h>
#include <malloc.h>

#include "daemon/core/lending/regions.h"

#if defined(__SANITIZE_ADDRESS__)
#define GPUMEM_ASAN 1
#elif defined(__has_feature)
#define GPUMEM_ASAN __has_feature(address_sanitizer)
#else
#define GPUMEM_ASAN 0
#endif
#if GPUMEM_ASAN
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();  // g++ has no header for it
#endif

namespace gpumem::core {
namespace {

constexpr std::size_t kLongestName = 128;
constexpr std::size_t kMostLeases = 128;  // of one region

std::size_t allocated() {
#if GPUMEM_ASAN
  return __sanitizer_get_current_allocated_bytes();
#else
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
#endif
}

std::string long_name(std::size_t number) {
  std::string name = std::to_string(number);
  return name.append(kLongestName - name.size(), 'n');
}

struct Shape {
  const char* name;
  Sharing sharing;
  std::size_t leases;
  std::size_t readers;
};

struct RegionMemory : testing::TestWithParam<Shape> {
  /// No two regions have a name, a lease or a reader in common.
  Region next() {
    Region region;
    region.owner = TenantId{1};
    region.name = long_name(++last_);
    region.sharing = GetParam().sharing;
    for (std::size_t i = 0; i < GetParam().leases; ++i) region.leases.push_back(LeaseId{++last_});
    for (std::size_t i = 0; i < GetParam().readers; ++i) region.readers.push_back(long_name(++last_));
    region.expires = TimePoint{} + std::chrono::hours(++last_);
    return region;
  }

 private:
  std::size_t last_ = 0;
};

TEST_P(RegionMemory, OfOneTenantIsBounded) {
  Outbox outbox;
  const std::size_t before = allocated();
  Regions regions(outbox);
  std::size_t count = 0;
  while (regions.add(next(), {})) ++count;
  const std::size_t bytes = allocated() - before;
  RecordProperty("regions", std::to_string(count));
  RecordProperty("bytes_each", std::to_string(bytes / count));
  EXPECT_LE(bytes, std::size_t{48} << 20) << count << " regions of " << bytes / count << " bytes";
}

INSTANTIATE_TEST_SUITE_P(Shapes, RegionMemory,
                         testing::Values(Shape{"Private", Sharing::kPrivate, 1, 0},
                                         Shape{"PublicOfSomeExtents", Sharing::kPublic, 4, 0},
                                         Shape{"PublicOfManyExtents", Sharing::kPublic, kMostLeases, 0},
                                         Shape{"ForOneReader", Sharing::kNamed, 1, 1},
                                         Shape{"ForManyReaders", Sharing::kNamed, 1, Regions::kMostReaders}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gpumem::core
