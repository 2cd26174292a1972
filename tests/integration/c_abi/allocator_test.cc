// Allocators through the C ABI: what works, and what the functions say of bad input.
#include <future>
#include <vector>

#include "tests/integration/c_abi/broker.h"

namespace gpumem::test {
namespace {

/// Of each way that blocks are made: cached, of a size class, a large one.
constexpr std::uint64_t kSizes[] = {256, 1 << 20, 40 << 20};

class CAllocator : public CAbiTest {
 protected:
  gpumem_address allocate(std::uint64_t bytes) {
    gpumem_address address = 0;
    EXPECT_TRUE(ok(gpumem_allocate(allocator_, bytes, nullptr, &address)));
    EXPECT_EQ(address % 256, 0U);
    return address;
  }
  gpumem_status free(gpumem_address address, std::uint64_t bytes = GPUMEM_UNKNOWN_SIZE) {
    return gpumem_deallocate(allocator_, address, bytes, nullptr);
  }
  gpumem_statistics statistics() {
    gpumem_statistics statistics = GPUMEM_STATISTICS_INIT;
    EXPECT_TRUE(ok(gpumem_allocator_statistics(allocator_, &statistics)));
    return statistics;
  }

  gpumem_allocator* allocator_ = open_allocator();
};

TEST_F(CAllocator, BlocksAreMemoryUntilTheyAreFreed) {
  for (const std::uint64_t size : kSizes) {
    const gpumem_address block = allocate(size);
    *memory_at(block) = 1;
    *memory_at(block + size - 1) = 2;
    EXPECT_EQ(statistics().in_use, size);
    EXPECT_TRUE(ok(free(block, size)));
  }
  EXPECT_EQ(statistics().in_use, 0U);
  EXPECT_EQ(statistics().allocations, 3U);
  EXPECT_TRUE(ok(free(allocate(1000)))) << "a size that is not known";
}

TEST_F(CAllocator, TellsOfItself) {
  EXPECT_EQ(gpumem_allocator_limit(allocator_), kPool.count);
  EXPECT_EQ(gpumem_allocator_granularity(allocator_), mebibytes(2).count);
  EXPECT_EQ(gpumem_allocator_ordinal(allocator_), 0);
  EXPECT_EQ(std::string(gpumem_allocator_device(allocator_)), broker().device().uuid());
}

TEST_F(CAllocator, FreesOfWhatIsNoBlockAreRefusedAndChangeNothing) {
  for (const std::uint64_t size : kSizes) {
    const gpumem_address block = allocate(size);
    int of_the_host = 0;
    for (const gpumem_address wrong :
         {gpumem_address{0}, gpumem_address{1}, block + 1, block + size / 2, block + size, block - 256,
          gpumem_address{UINT64_MAX}, reinterpret_cast<gpumem_address>(&of_the_host)}) {
      EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, free(wrong))) << wrong - block << " of " << size;
    }
    for (const std::uint64_t wrong : {std::uint64_t{0}, size - 1, size + 1, std::uint64_t{1} << 63}) {
      EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, free(block, wrong))) << wrong << " of " << size;
    }
    EXPECT_EQ(statistics().in_use, size);
    EXPECT_TRUE(ok(free(block, size)));
    EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, free(block, size))) << "freed already: " << size;
    EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, free(block))) << "freed already: " << size;
    EXPECT_EQ(statistics().in_use, 0U);
  }
}

TEST_F(CAllocator, ZeroAndHugeSizesAreRefused) {
  gpumem_address address = 7;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_allocate(allocator_, 0, nullptr, &address)));
  for (const std::uint64_t size :
       {kPool.count + 1, std::uint64_t{1} << 47, std::uint64_t{1} << 63, UINT64_MAX}) {
    EXPECT_TRUE(
        fails(GPUMEM_RESOURCE_EXHAUSTED, gpumem_allocate(allocator_, size, nullptr, &address), "limit"))
        << size;
  }
  EXPECT_EQ(statistics().committed, 0U) << "nothing was asked for";
  EXPECT_EQ(address, 7U) << "nothing is stored";
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_allocate(allocator_, 1, nullptr, nullptr), "NULL"));
}

TEST_F(CAllocator, OutOfMemoryComesWithTheBrokersExplanation) {
  auto neighbour = neighbour_with(mebibytes(200));
  gpumem_address address = 7;
  EXPECT_TRUE(fails(GPUMEM_RESOURCE_EXHAUSTED,
                    gpumem_allocate(allocator_, mebibytes(100).count, nullptr, &address), "224MiB"));
  gpumem_allocator_options options = GPUMEM_ALLOCATOR_OPTIONS_INIT;
  options.wait_ms = 20;
  EXPECT_TRUE(fails(GPUMEM_DEADLINE_EXCEEDED,
                    gpumem_allocate(open_allocator(options), mebibytes(100).count, nullptr, &address),
                    "224MiB"));
  EXPECT_EQ(address, 7U);
  EXPECT_EQ(neighbour->leave(), 0);
}

/// An allocator of which one thread waits for more than the broker has.
class CWaiting : public CAbiTest {
 protected:
  CWaiting() {
    gpumem_allocator_options options = GPUMEM_ALLOCATOR_OPTIONS_INIT;
    options.wait_ms = 3'600'000;  // longer than a test may take
    options.idle_ms = 3'600'000;  // nothing goes back to the broker meanwhile
    allocator_ = open_allocator(options);
    EXPECT_TRUE(ok(gpumem_allocate(allocator_, kHeld, nullptr, &held_)));
    waiter_ = std::async(std::launch::async, [this] {
      gpumem_address address = 0;
      const gpumem_status got = gpumem_allocate(allocator_, kWanted, nullptr, &address);
      return got == GPUMEM_OK ? gpumem_deallocate(allocator_, address, kWanted, nullptr) : got;
    });
    EXPECT_TRUE(eventually([] { return broker().device().waiting() == 1; }));
  }
  ~CWaiting() override { EXPECT_EQ(neighbour_->leave(), 0); }
  void free_held() { EXPECT_TRUE(ok(gpumem_deallocate(allocator_, held_, kHeld, nullptr))); }

  static constexpr std::uint64_t kHeld = std::uint64_t{100} << 20, kWanted = std::uint64_t{64} << 20;
  std::unique_ptr<ClientProcess> neighbour_ = neighbour_with(mebibytes(100));
  gpumem_allocator* allocator_ = nullptr;
  gpumem_address held_ = 0;
  std::future<gpumem_status> waiter_;
};

TEST_F(CWaiting, DoesNotHoldUpRequestsThatFit) {
  gpumem_address small = 0;
  EXPECT_TRUE(ok(gpumem_allocate(allocator_, 8 << 20, nullptr, &small)));
  EXPECT_TRUE(eventually([] { return broker().device().waiting() == 1; })) << "it waits on";
  free_held();
  EXPECT_EQ(waiter_.get(), GPUMEM_OK);
  EXPECT_TRUE(ok(gpumem_deallocate(allocator_, small, 8 << 20, nullptr)));
}

TEST_F(CWaiting, IsCalledOffWhenTheAllocatorCloses) {
  EXPECT_TRUE(ok(gpumem_allocator_destroy(allocator_)));
  EXPECT_EQ(waiter_.get(), GPUMEM_FAILED_PRECONDITION);
}

TEST_F(CAllocator, OpeningRefusesBadOptionsWithAReason) {
  gpumem_allocator* opened = nullptr;
  gpumem_allocator_options options = GPUMEM_ALLOCATOR_OPTIONS_INIT;
  options.device = "GPU-00000000-0000-0000-0000-000000000001";
  EXPECT_TRUE(fails(GPUMEM_NOT_FOUND, gpumem_allocator_open(session_, &options, &opened)));
  options = GPUMEM_ALLOCATOR_OPTIONS_INIT;
  options.wait_ms = -2;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_allocator_open(session_, &options, &opened), "wait_ms"));
  options = GPUMEM_ALLOCATOR_OPTIONS_INIT;
  options.idle_ms = -2;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_allocator_open(session_, &options, &opened), "idle_ms"));
  options.struct_size = 0;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_allocator_open(session_, &options, &opened), "_INIT"));
  EXPECT_EQ(opened, nullptr);
}

TEST_F(CAllocator, BlocksGrowInPlaceWhereThereIsRoom) {
  gpumem_placement placement = GPUMEM_PLACEMENT_INIT;
  placement.room = mebibytes(64).count;
  gpumem_address block = 0;
  ASSERT_TRUE(ok(gpumem_allocate_placed(allocator_, 4 << 20, nullptr, &placement, &block)));
  *memory_at(block) = 5;
  EXPECT_TRUE(ok(gpumem_extend(allocator_, block, 4 << 20, 32 << 20, nullptr)));
  EXPECT_EQ(*memory_at(block), 5);
  *memory_at(block + (32 << 20) - 1) = 6;
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_extend(allocator_, block, 4 << 20, 40 << 20, nullptr)));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_extend(allocator_, block + 256, 1, 2, nullptr)));
  EXPECT_TRUE(ok(free(block, 32 << 20)));
}

TEST_F(CAllocator, SnapshotNamesEveryBlock) {
  gpumem_placement placement = GPUMEM_PLACEMENT_INIT;
  ASSERT_TRUE(ok(gpumem_tag(allocator_, "weights", &placement.tag)));
  gpumem_address tagged = 0;
  ASSERT_TRUE(ok(gpumem_allocate_placed(allocator_, 3 << 20, nullptr, &placement, &tagged)));
  const gpumem_address plain = allocate(256);
  struct Seen {
    gpumem_allocator* allocator;
    std::map<gpumem_address, std::pair<std::uint64_t, std::string>> blocks;
  } seen{allocator_, {}};
  const auto visitor = [](const gpumem_block* block, void* context) {
    auto* own = static_cast<Seen*>(context);
    own->blocks[block->address] = {block->bytes, block->tag};
    EXPECT_EQ(block->struct_size, sizeof(gpumem_block));
    EXPECT_GE(block->placed, block->bytes);
    EXPECT_GE(block->age_ms, 0);
    gpumem_statistics inside = GPUMEM_STATISTICS_INIT;
    EXPECT_TRUE(ok(gpumem_allocator_statistics(own->allocator, &inside))) << "a visitor may call anything";
    return true;
  };
  EXPECT_TRUE(ok(gpumem_allocator_snapshot(allocator_, visitor, &seen)));
  EXPECT_EQ(seen.blocks.size(), 2U);
  EXPECT_EQ(seen.blocks[tagged], (std::pair<std::uint64_t, std::string>{3 << 20, "weights"}));
  EXPECT_EQ(seen.blocks[plain], (std::pair<std::uint64_t, std::string>{256, ""}));
  EXPECT_TRUE(
      fails(GPUMEM_INVALID_ARGUMENT, gpumem_allocator_snapshot(allocator_, nullptr, nullptr), "visitor"));
}

TEST_F(CAllocator, SizeClassesAreListed) {
  (void)allocate(256);
  (void)allocate(40 << 20);
  std::vector<gpumem_size_class> classes;
  const auto visitor = [](const gpumem_size_class* shown, void* context) {
    static_cast<std::vector<gpumem_size_class>*>(context)->push_back(*shown);
    return true;
  };
  EXPECT_TRUE(ok(gpumem_allocator_size_classes(allocator_, visitor, &classes)));
  ASSERT_GE(classes.size(), 2U);
  EXPECT_GE(classes.front().size, 256U);
  EXPECT_EQ(classes.front().in_use, 1U);
  EXPECT_EQ(classes.front().allocations, 1U);
}

TEST_F(CAllocator, TagsAreChecked) {
  std::uint8_t first = 0;
  std::uint8_t again = 0;
  EXPECT_TRUE(ok(gpumem_tag(allocator_, "a", &first)));
  EXPECT_TRUE(ok(gpumem_tag(allocator_, "a", &again)));
  EXPECT_EQ(first, again);
  EXPECT_NE(first, 0);
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_tag(allocator_, std::string(64, 'x').c_str(), &again)));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_tag(allocator_, nullptr, &again), "name"));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_tag(allocator_, "b", nullptr), "NULL"));
  gpumem_status last = GPUMEM_OK;
  for (int i = 0; i < 300 && last == GPUMEM_OK; ++i) {
    last = gpumem_tag(allocator_, ("tag " + std::to_string(i)).c_str(), &again);
  }
  EXPECT_TRUE(fails(GPUMEM_RESOURCE_EXHAUSTED, last));
}

TEST_F(CAllocator, TrimGivesBackFreeMemory) {
  EXPECT_TRUE(ok(free(allocate(40 << 20))));
  EXPECT_GE(statistics().committed, std::uint64_t{40} << 20);
  std::uint64_t given = 0;
  EXPECT_TRUE(ok(gpumem_allocator_trim(allocator_, GPUMEM_UNKNOWN_SIZE, &given)));
  EXPECT_GE(given, std::uint64_t{40} << 20);
  EXPECT_EQ(statistics().committed, 0U);
  EXPECT_TRUE(ok(gpumem_allocator_trim(allocator_, 1, nullptr)));
}

TEST_F(CAllocator, StreamsCanBeForgottenAndAwaited) {
  EXPECT_TRUE(ok(free(allocate(4096))));
  EXPECT_TRUE(ok(gpumem_synchronize(allocator_, nullptr)));
  EXPECT_TRUE(ok(gpumem_release_stream(allocator_, nullptr)));
}

TEST_F(CAllocator, ClosesOnlyWithoutBlocksAndIsDestroyedWithThem) {
  const gpumem_address block = allocate(4096);
  (void)allocate(40 << 20);
  EXPECT_TRUE(fails(GPUMEM_FAILED_PRECONDITION, gpumem_allocator_close(allocator_)));
  EXPECT_EQ(statistics().in_use, 4096U + (40U << 20)) << "nothing has changed";
  EXPECT_TRUE(ok(gpumem_allocator_destroy(allocator_)));
  EXPECT_TRUE(fails(GPUMEM_FAILED_PRECONDITION, free(block, 4096)));
  EXPECT_TRUE(eventually([] { return broker().device().free() == kPool.count; })) << broker().unrest();
}

}  // namespace
}  // namespace gpumem::test
