// The number of extents is bounded: each takes a descriptor of the broker.
#include "tests/unit/core/memory/store_fixture.h"

namespace gpumem::core {
namespace {

// A store that may have few extents.
struct FewExtents : testing::Test {
  explicit FewExtents(std::size_t most = 128)
      : store(0, gibibytes(12), mebibytes(2), extent_ids, job_ids, most), driver({gibibytes(12)}) {}
  void SetUp() override { run(); }
  void run() {
    for (auto progress = advance(); !progress.jobs.empty(); progress = advance()) {
      for (const Job& job : progress.jobs) {
        JobResult result = driver.run(job);
        result.lacks_files = lacks_files;
        store.finish(result, now);
      }
    }
  }
  Store::Progress advance() {
    Store::Progress progress = store.advance(now);
    for (auto& one : progress.assembled) std::ranges::move(one.extents, std::back_inserter(lent));
    too_many += progress.too_many.size();
    unobtainable += progress.unobtainable.size();
    return progress;
  }
  // Wants extents of `size` one after the other, until there may be no more.
  std::size_t take_all(Bytes size, bool guaranteed) {
    const std::size_t before = lent.size();
    const std::size_t refused = too_many + unobtainable;
    while (too_many + unobtainable == refused) {
      store.want(RequestId{++last}, size, {}, guaranteed);
      run();
    }
    return lent.size() - before;
  }

  IdSource<ExtentId> extent_ids;
  IdSource<JobId> job_ids;
  Store store;
  FakeDriver driver;
  TimePoint now{};
  std::uint64_t last = 0;
  std::vector<Extent> lent;
  std::size_t too_many = 0;
  std::size_t unobtainable = 0;
  bool lacks_files = false;
};

TEST_F(FewExtents, AreNotExceededAndTheLastQuarterIsForGuaranteedMemory) {
  const std::size_t ordinary = take_all(mebibytes(2), false);
  EXPECT_GE(ordinary, 64U);
  EXPECT_LE(ordinary, 96U);
  EXPECT_EQ(too_many, 1U);
  EXPECT_EQ(store.missing(), Bytes{}) << "nothing was broken that could not be made";
  const std::size_t guaranteed = take_all(mebibytes(2), true);
  EXPECT_GE(guaranteed, 8U);
  EXPECT_LE(ordinary + guaranteed, 128U);
  EXPECT_EQ(unobtainable, 0U);
  EXPECT_EQ(store.warm() + total(lent), gibibytes(12));
}

TEST_F(FewExtents, LeaveLargeExtentsToOthers) {
  take_all(mebibytes(2), false);
  store.want(RequestId{++last}, gibibytes(4), {}, false);
  run();
  EXPECT_EQ(too_many, 1U);
  EXPECT_GE(total(lent), gibibytes(4));
}

TEST_F(FewExtents, AreMoreAgainWhenSomeComeBack) {
  take_all(mebibytes(2), false);
  std::uint64_t lease = 0;
  const std::size_t count = lent.size();
  for (const Extent& extent : std::exchange(lent, {})) store.take_back(LeaseId{++lease}, extent);
  run();
  EXPECT_EQ(store.warm(), gibibytes(12));
  EXPECT_GE(take_all(mebibytes(2), false), count / 2);
}

struct ManyExtents : FewExtents {
  ManyExtents() : FewExtents(4096) {}
};

TEST_F(ManyExtents, KeepTheirSizeWhenDescriptorsRunOut) {
  driver.fails = [](const Extent& extent) { return extent.size == mebibytes(20); };
  lacks_files = true;
  store.want(RequestId{++last}, mebibytes(20), kOneExtent);
  run();
  EXPECT_EQ(too_many, 1U);
  EXPECT_TRUE(store.lacks_files());
  EXPECT_LE(store.missing(), mebibytes(8UL * 20));
  EXPECT_EQ(store.warm() + store.missing(), gibibytes(12));
  driver.fails = nullptr;
  now += Store::kLongestPause;
  run();
  EXPECT_EQ(store.missing(), Bytes{});
}

}  // namespace
}  // namespace gpumem::core
