// The process's own session and allocators when their broker ends and another one comes.
#include "tests/integration/c_abi/broker.h"

namespace gpumem::test {
namespace {

class CRestart : public testing::Test {
 protected:
  CRestart() {
    (void)broker();
    EXPECT_TRUE(ok(gpumem_default_session(&session_)));
    EXPECT_TRUE(ok(gpumem_default_allocator(0, &allocator_)));
    held_ = allocate(1 << 20);
    *memory_at(held_) = 7;
  }
  ~CRestart() override {
    EXPECT_EQ(*memory_at(held_), 7) << "what was allocated before stays";
    free(held_, 1 << 20);
    EXPECT_TRUE(ok(gpumem_allocator_trim(allocator_, GPUMEM_UNKNOWN_SIZE, nullptr)));
  }
  static void restart() {
    broker().kill();
    broker().start_again();
  }
  /// The next broker knows nothing of this one.
  static void restart_without_journal() {
    broker().kill();
    std::filesystem::remove(broker().folder() + "/private/journal");
    broker().start_again();
  }
  gpumem_address allocate(std::uint64_t bytes) {
    gpumem_address address = 0;
    EXPECT_TRUE(ok(gpumem_allocate(allocator_, bytes, nullptr, &address)));
    if (address != 0) *memory_at(address) = 1;
    return address;
  }
  void free(gpumem_address address, std::uint64_t bytes) {
    EXPECT_TRUE(ok(gpumem_deallocate(allocator_, address, bytes, nullptr)));
  }

  gpumem_session* session_ = nullptr;
  gpumem_allocator* allocator_ = nullptr;
  gpumem_address held_ = 0;
};

constexpr std::uint64_t kMuch = std::uint64_t{64} << 20;  // more than any allocator has left

TEST_F(CRestart, AllocatorThatTheProgramKeepsGoesOnAtTheNextBroker) {
  restart();
  const gpumem_address address = allocate(kMuch);
  EXPECT_EQ(broker().sessions().size(), 1U);
  free(address, kMuch);
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_deallocate(allocator_, address, kMuch, nullptr)));
}

TEST_F(CRestart, IsNotNoticedByUsersOfTheDefault) {
  restart();
  gpumem_allocator* allocator = nullptr;
  EXPECT_TRUE(ok(gpumem_default_allocator(0, &allocator)));
  EXPECT_EQ(allocator, allocator_);
  gpumem_session* session = nullptr;
  EXPECT_TRUE(ok(gpumem_default_session(&session)));
  EXPECT_EQ(session, session_);
  EXPECT_TRUE(ok(gpumem_session_ping(session)));
}

TEST_F(CRestart, NextAllocatorFreesBlocksOfAnEarlierOne) {
  restart_without_journal();
  gpumem_allocator* const earlier = allocator_;
  free(allocate(kMuch), kMuch);
  EXPECT_TRUE(ok(gpumem_default_allocator(0, &allocator_)));
  EXPECT_NE(allocator_, earlier);
}

TEST_F(CRestart, OrderlyEndIsSurvivedAsWell) {
  EXPECT_EQ(broker().stop(), 0);
  broker().start_again();
  free(allocate(kMuch), kMuch);
}

TEST_F(CRestart, ManyInARowAreSurvived) {
  std::vector<gpumem_address> blocks;
  for (int round = 0; round < 3; ++round) {
    restart();
    blocks.push_back(allocate(kMuch / 2));
  }
  for (const gpumem_address block : blocks) free(block, kMuch / 2);
}

TEST_F(CRestart, WhileThereIsNoBrokerCallsSaySo) {
  broker().kill();
  gpumem_address none = 0;
  EXPECT_TRUE(fails(GPUMEM_UNAVAILABLE, gpumem_allocate(allocator_, kMuch, nullptr, &none),
                    "memory that is already"));
  EXPECT_TRUE(fails(GPUMEM_UNAVAILABLE, gpumem_session_ping(session_), "no other resumes the session yet"));
  EXPECT_TRUE(ok(gpumem_default_allocator(0, &allocator_))) << "it has memory yet";
  broker().start_again();
  free(allocate(kMuch), kMuch);
}

TEST_F(CRestart, SessionIsConnectedAnewWhenItIsAskedFor) {
  restart_without_journal();
  EXPECT_TRUE(fails(GPUMEM_UNAUTHENTICATED, gpumem_session_ping(session_), "open a new session"));
  gpumem_session* session = nullptr;
  EXPECT_TRUE(ok(gpumem_default_session(&session)));
  EXPECT_NE(session, session_);
  EXPECT_TRUE(ok(gpumem_session_ping(session)));
}

TEST_F(CRestart, TagsKeepTheirNumbers) {
  std::uint8_t weights = 0;
  ASSERT_TRUE(ok(gpumem_tag(allocator_, "weights", &weights)));
  restart();
  free(allocate(kMuch), kMuch);
  std::uint8_t cache = 0;
  std::uint8_t again = 0;
  EXPECT_TRUE(ok(gpumem_tag(allocator_, "cache", &cache)));
  EXPECT_TRUE(ok(gpumem_tag(allocator_, "weights", &again)));
  EXPECT_EQ(again, weights);
  for (const std::uint8_t tag : {weights, cache}) {
    gpumem_placement placement = GPUMEM_PLACEMENT_INIT;
    placement.tag = tag;
    gpumem_address address = 0;
    EXPECT_TRUE(ok(gpumem_allocate_placed(allocator_, 4096, nullptr, &placement, &address)));
    free(address, 4096);
  }
}

TEST_F(CRestart, BlockOfAnEarlierBrokerCanBeExtendedInPlace) {
  gpumem_placement placement = GPUMEM_PLACEMENT_INIT;
  placement.room = 2 << 20;
  gpumem_address address = 0;
  ASSERT_TRUE(ok(gpumem_allocate_placed(allocator_, 1 << 20, nullptr, &placement, &address)));
  restart();
  free(allocate(kMuch), kMuch);
  EXPECT_TRUE(ok(gpumem_extend(allocator_, address, 1 << 20, 1 << 19, nullptr))) << "to make it shorter";
  free(address, 1 << 19);
}

TEST_F(CRestart, FrameworksPairsGoOn) {
  void* const before = gpumem_torch_alloc(4096, 0, nullptr);
  gpumem_torch_free(gpumem_torch_alloc(4096, 0, nullptr), 4096, 0, nullptr);
  gpumem_cupy_stream legacy = GPUMEM_CUPY_STREAM_INIT;
  legacy.allocator = allocator_;
  void* const cupy = gpumem_cupy_malloc(&legacy, 4096, 0);
  restart();
  void* const after = gpumem_torch_alloc(kMuch, 0, nullptr);
  EXPECT_NE(after, nullptr);
  EXPECT_NE(cupy, nullptr);
  testing::internal::CaptureStderr();
  gpumem_torch_free(before, 4096, 0, nullptr);
  gpumem_torch_free(after, kMuch, 0, nullptr);
  gpumem_cupy_free(&legacy, cupy, 0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace gpumem::test
