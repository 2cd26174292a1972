// Who may have the memory that a stream has freed, and when. Frees are held up by host functions, so nothing
// depends on time.
#include <iterator>
#include <map>
#include <vector>

#include "tests/sim/memory/pool_support.h"
#include "tests/support/eventually.h"

namespace gpumem::sim::test {
namespace {

using PoolReuse = SimTest;

/// Two streams that are apart, and memory that the first one has freed but not come to.
struct Freed {
  CUstream first = stream_apart(), second = stream_apart();
  CUmemoryPool pool;
  CUdeviceptr memory;
  Barrier barrier;

  explicit Freed(CUmemoryPool of, std::uint64_t size = kPage) : pool(of), memory(allocate(of, size, first)) {
    barrier.put_in(first);
    EXPECT_CU(cuMemFreeAsync(memory, first));
  }
  ~Freed() {
    barrier.open();
    EXPECT_CU(cuCtxSynchronize());
  }
  /// Lets the first stream come to the free, without the host's having waited for it.
  void pass() {
    barrier.open();
    EXPECT_TRUE(gpumem::test::eventually([this] { return cuStreamQuery(first) == CUDA_SUCCESS; }));
    barrier.open();  // for the destructor there is nothing left to hold up
  }
};

TEST_IN_CONTEXT(PoolReuse, OtherStreamHasNewMemoryWhileTheFreeIsAhead) {
  const CUmemoryPool pool = create_pool();
  Freed freed(pool);
  EXPECT_NE(allocate(pool, kPage, freed.second), freed.memory);
  EXPECT_EQ(reserved(pool), 2 * kPage);
}

TEST_IN_CONTEXT(PoolReuse, OtherStreamHasItOnceTheFreeIsPastIfOpportunistic) {
  const CUmemoryPool pool = create_pool();
  allow_only(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC);
  Freed freed(pool);
  freed.pass();
  EXPECT_EQ(allocate(pool, kPage, freed.second), freed.memory);
}

TEST_IN_CONTEXT(PoolReuse, OtherStreamHasItOnlyAfterTheHostWaitedIfNotOpportunistic) {
  const CUmemoryPool pool = create_pool();
  keep_all(pool);
  allow_only(pool, 0);
  Freed freed(pool);
  freed.pass();
  EXPECT_NE(allocate(pool, kPage, freed.second), freed.memory);
  EXPECT_CU(cuStreamSynchronize(freed.first));
  EXPECT_EQ(allocate(pool, kPage, freed.second), freed.memory);
}

TEST_IN_CONTEXT(PoolReuse, OtherStreamHasItIfAnEventOrdersThem) {
  const CUmemoryPool pool = create_pool();
  CUevent event = nullptr;
  ASSERT_CU(cuEventCreate(&event, CU_EVENT_DEFAULT));
  for (const bool is_allowed : {false, true}) {
    allow_only(pool, is_allowed ? CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES : 0);
    Freed freed(pool);
    ASSERT_CU(cuEventRecord(event, freed.first));
    ASSERT_CU(cuStreamWaitEvent(freed.second, event, 0));
    const CUdeviceptr taken = allocate(pool, kPage, freed.second);
    EXPECT_EQ(taken == freed.memory, is_allowed);
    EXPECT_CU(cuMemFreeAsync(taken, freed.second));
  }
}

TEST_IN_CONTEXT(PoolReuse, EventBeforeTheFreeOrdersNothing) {
  const CUmemoryPool pool = create_pool();
  const CUstream first = stream_apart(), second = stream_apart();
  const CUdeviceptr memory = allocate(pool, kPage, first);
  CUevent event = nullptr;
  ASSERT_CU(cuEventCreate(&event, CU_EVENT_DEFAULT));
  Barrier barrier;
  ASSERT_CU(cuEventRecord(event, first));
  barrier.put_in(first);
  ASSERT_CU(cuMemFreeAsync(memory, first));
  ASSERT_CU(cuStreamWaitEvent(second, event, 0));
  EXPECT_NE(allocate(pool, kPage, second), memory);
  barrier.open();
  EXPECT_CU(cuCtxSynchronize());
}

TEST_IN_CONTEXT(PoolReuse, NullStreamOrdersLikeAnEvent) {
  const CUmemoryPool pool = create_pool();
  CUstream blocking = nullptr;
  ASSERT_CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  const CUdeviceptr memory = allocate(pool, kPage, blocking);
  Barrier barrier;
  barrier.put_in(blocking);
  ASSERT_CU(cuMemFreeAsync(memory, blocking));
  EXPECT_EQ(allocate(pool, kPage, nullptr), memory);
  barrier.open();
  EXPECT_CU(cuCtxSynchronize());
}

TEST_IN_CONTEXT(PoolReuse, WhereNothingElseIsLeftTheStreamWaitsForTheFree) {
  CUmemPoolProps small = pool_properties();
  small.maxSize = kPage;
  const CUmemoryPool pool = create_pool(small);
  Freed freed(pool);
  CUdeviceptr taken = 0;
  allow_only(pool, 0);
  EXPECT_EQ(cuMemAllocFromPoolAsync(&taken, kPage, pool, freed.second), CUDA_ERROR_OUT_OF_MEMORY);
  allow_only(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES);
  EXPECT_EQ(allocate(pool, kPage, freed.second), freed.memory);
  EXPECT_EQ(cuStreamQuery(freed.second), CUDA_ERROR_NOT_READY);
  freed.pass();
  EXPECT_CU(cuStreamSynchronize(freed.second));
}

TEST_IN_CONTEXT(PoolReuse, FreedNeighboursAreOneAgain) {
  const CUmemoryPool pool = create_pool();
  keep_all(pool);
  const CUstream first = stream_apart(), second = stream_apart();
  std::vector<CUdeviceptr> parts;
  for (int i = 0; i < 4; ++i) parts.push_back(allocate(pool, kPage / 4, first));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_CU(cuMemFreeAsync(parts[i], i % 2 == 0 ? first : second));
  }
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(allocate(pool, kPage, first), parts[0]);
  EXPECT_EQ(reserved(pool), kPage);
}

TEST_IN_CONTEXT(PoolReuse, RandomUseNeverHandsBytesOutTwice) {
  const CUmemoryPool pool = create_pool();
  const CUstream streams[] = {stream_apart(), stream_apart(), nullptr};
  std::map<CUdeviceptr, std::uint64_t> live;
  std::uint64_t random = 1;
  const auto next = [&random](std::uint64_t end) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    return (random >> 33) % end;
  };
  for (int step = 0; step < 4000; ++step) {
    const CUstream stream = streams[next(3)];
    if (live.empty() || next(100) < 55) {
      const std::uint64_t size = 1 + next(next(4) == 0 ? 3 * kPage : 5000);
      CUdeviceptr start = 0;
      if (cuMemAllocFromPoolAsync(&start, size, pool, stream) != CUDA_SUCCESS) continue;
      EXPECT_EQ(start % 512, 0U);
      const auto after = live.lower_bound(start);
      EXPECT_TRUE(after == live.end() || start + size <= after->first);
      EXPECT_TRUE(after == live.begin() || std::prev(after)->first + std::prev(after)->second <= start);
      live[start] = size;
    } else {
      const auto one = std::next(live.begin(), static_cast<std::ptrdiff_t>(next(live.size())));
      EXPECT_CU(cuMemFreeAsync(one->first, stream));
      live.erase(one);
    }
    if (step % 500 == 0) {
      EXPECT_CU(cuCtxSynchronize());
    }
  }
  for (const auto& [start, size] : live) EXPECT_CU(cuMemFreeAsync(start, streams[0]));
  EXPECT_EQ(used_in(pool), 0U);
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(reserved(pool), 0U);
}

}  // namespace
}  // namespace gpumem::sim::test
