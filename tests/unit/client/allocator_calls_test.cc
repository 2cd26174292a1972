// How many driver calls an allocation and a free make: the table of docs/allocator.md.
#include <algorithm>
#include <limits>

#include "cuda/library.h"
#include "gpumem/allocator.h"
#include "sim/control/faults.h"
#include "tests/unit/client/slice_fixture.h"

namespace gpumem::client::test {
namespace {

enum class Of { kLegacyDefault, kPerThreadDefault, kCreated };

/// A row: what one block costs that is allocated and freed again and again.
struct Row {
  const char* name;
  Of stream;
  Bytes bytes;
  std::uint64_t allocate = 0, free = 0;
  friend std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }
};

struct AllocatorsCalls : SliceTest, testing::WithParamInterface<Row> {
  AllocatorsCalls() {
    const auto library = cuda::Library::open(simulated_machine(), "libcuda.so.1");
    EXPECT_TRUE(library->bind(create_, "cuStreamCreate"));
    EXPECT_TRUE(library->bind(destroy_, "cuStreamDestroy_v2"));
  }
  /// Driver calls of `act`. The allocator's own thread may make some meanwhile.
  template <class Act>
  std::uint64_t calls_of(Act act) const {
    const std::uint64_t before = sim::faults(machine_)->at(0).matches;
    act();
    return sim::faults(machine_)->at(0).matches - before;
  }

  const sim::Machine machine_ = sim::load_machine(simulated_machine()).value();
  decltype(&::cuStreamCreate) create_ = nullptr;
  decltype(&::cuStreamDestroy) destroy_ = nullptr;
};

TEST_P(AllocatorsCalls, AreAsDocumented) {
  const auto entered = cuda::CurrentContext::enter(**cuda::Driver::open(simulated_machine()), 0);
  ASSERT_TRUE(entered);
  auto allocator = session_->open_allocator({.idle = std::chrono::hours(1)});
  ASSERT_TRUE(allocator) << to_string(allocator.error());
  CUstream created = nullptr;
  ASSERT_EQ(create_(&created, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  const Row& row = GetParam();
  const StreamHandle stream = row.stream == Of::kLegacyDefault      ? nullptr
                              : row.stream == Of::kPerThreadDefault ? CU_STREAM_PER_THREAD
                                                                    : created;
  ASSERT_TRUE(sim::add_fault(machine_, "cu* fail UNKNOWN nth 1000000000"));
  std::uint64_t allocate = std::numeric_limits<std::uint64_t>::max(), free = allocate;
  // In a program with other threads, caches begin a little later.
  for (int i = 0; i < 20'000 && (allocate != row.allocate || free != row.free); ++i) {
    std::uint64_t address = 0;
    const auto first = calls_of([&] { address = allocator->allocate(row.bytes, stream).value(); });
    const auto second = calls_of([&] { EXPECT_TRUE(allocator->deallocate(address, row.bytes, stream)); });
    allocate = std::min(allocate, first);
    free = std::min(free, second);
  }
  EXPECT_TRUE(sim::clear_faults(machine_));
  EXPECT_EQ(allocate, row.allocate);
  EXPECT_EQ(free, row.free);
  EXPECT_TRUE(allocator->close());
  EXPECT_EQ(destroy_(created), CUDA_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(OfEveryKind, AllocatorsCalls,
                         testing::Values(Row{"LegacyDefault", Of::kLegacyDefault, kibibytes(4), 0, 0},
                                         Row{"LegacyDefaultLarge", Of::kLegacyDefault, mebibytes(2), 0, 0},
                                         Row{"Created", Of::kCreated, kibibytes(4), 1, 3},
                                         Row{"CreatedSpan", Of::kCreated, mebibytes(1), 1, 3},
                                         Row{"CreatedLarge", Of::kCreated, mebibytes(2), 1, 3},
                                         Row{"PerThreadDefault", Of::kPerThreadDefault, kibibytes(4), 7, 19}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gpumem::client::test
