// The backing of an allocator, on the simulated driver, with a broker that the tests play.
#include "client/slice/broker_backing.h"

#include <array>
#include <future>
#include <thread>

#include "sim/control/faults.h"
#include "tests/unit/client/slice_fixture.h"

namespace gpumem::client::test {
namespace {

using allocator::Address;
using allocator::Extent;
using std::chrono::seconds;

class BrokerBackingTest : public testing::Test {
 protected:
  std::unique_ptr<BrokerBacking> open(Bytes limit = {}) {
    auto opened = BrokerBacking::open(connection_, {"", limit, "blocks"});
    EXPECT_TRUE(opened) << to_string(opened.error());
    return std::move(*opened);
  }
  std::unique_ptr<BrokerBacking> open_in(std::shared_ptr<SharedLimit> shared_limit) {
    auto opened = BrokerBacking::open(connection_, {"", mebibytes(64), "blocks", std::move(shared_limit)});
    EXPECT_TRUE(opened) << to_string(opened.error());
    return std::move(*opened);
  }
  static std::vector<Extent> obtain(BrokerBacking& memory, Bytes bytes) {
    auto extents = memory.obtain({bytes, bytes, {}, {}});
    EXPECT_TRUE(extents) << to_string(extents.error());
    return std::move(*extents);
  }
  static void put(Address at, std::uint64_t word) { *reinterpret_cast<volatile std::uint64_t*>(at) = word; }
  static std::uint64_t word_at(Address at) { return *reinterpret_cast<volatile std::uint64_t*>(at); }

  /// For every process of the machine, of which this is the only one.
  static void inject(const std::string& rule) {
    const auto added = sim::add_fault(sim::load_machine(simulated_machine()).value(), rule);
    ASSERT_TRUE(added) << to_string(added.error());
  }
  static void heal() { ASSERT_TRUE(sim::clear_faults(sim::load_machine(simulated_machine()).value())); }
  ~BrokerBackingTest() override { heal(); }

  FakeBroker broker_;
  std::shared_ptr<Connection> connection_ = *Connection::open({broker_.folder(), "test", seconds(20)});
};

Bytes sum_of(const std::vector<Extent>& extents) {
  Bytes sum;
  for (const Extent& extent : extents) sum += extent.size;
  return sum;
}

TEST_F(BrokerBackingTest, HasManyTimesAsManyAddressesAsItMayHaveMemory) {
  const auto memory = open(mebibytes(24));
  EXPECT_EQ(memory->limit(), mebibytes(24));
  EXPECT_EQ(memory->properties().addresses, mebibytes(512)) << "16 times as many, and a power of two";
  EXPECT_EQ(memory->properties().base % kPage.count, 0U);
  EXPECT_EQ(memory->granularity(), kPage);
  EXPECT_EQ(memory->properties().ordinal, 0);
  EXPECT_EQ(memory->committed(), Bytes{});
}

TEST_F(BrokerBackingTest, MemoryIsTakenOfARoomThatSeveralShare) {
  const auto shared_limit = std::make_shared<SharedLimit>(mebibytes(13));
  auto one = open_in(shared_limit);
  const auto other = open_in(shared_limit);
  auto extents = obtain(*one, mebibytes(8));
  EXPECT_EQ(shared_limit->taken(), mebibytes(8));
  const auto some = other->obtain({mebibytes(8), mebibytes(2), {}, {}});
  ASSERT_TRUE(some) << to_string(some.error());
  EXPECT_EQ(sum_of(*some), mebibytes(4)) << "what is left of the limit, in whole units";
  EXPECT_EQ(shared_limit->taken(), mebibytes(12));
  const auto more = other->obtain({mebibytes(2), mebibytes(2), {}, {}});
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kResourceExhausted);
  EXPECT_EQ(shared_limit->taken(), mebibytes(12)) << "a refusal takes nothing";
  const Bytes back = extents.back().size;
  one->give_back({extents.back()});
  EXPECT_EQ(shared_limit->taken(), mebibytes(12).minus(back));
  one.reset();
  EXPECT_EQ(shared_limit->taken(), mebibytes(4)) << "its end gives back the rest";
}

TEST_F(BrokerBackingTest, RefusedGrowthGivesItsRoomBack) {
  const auto shared_limit = std::make_shared<SharedLimit>(mebibytes(13));
  const auto memory = open_in(shared_limit);
  broker_.refuse_growth = [](const FakeBroker::IsCancelled&) {
    return failed(Code::kResourceExhausted, "others have it");
  };
  EXPECT_FALSE(memory->obtain({mebibytes(8), mebibytes(8), {}, {}}));
  EXPECT_EQ(shared_limit->taken(), Bytes{});
}

TEST_F(BrokerBackingTest, MakesDoWithFewerAddressesWhereThereAreNotSoMany) {
  inject("cuMemAddressReserve fail OUT_OF_MEMORY times 3");
  EXPECT_EQ(open(mebibytes(32))->properties().addresses, mebibytes(64));
  heal();
  inject("cuMemAddressReserve fail OUT_OF_MEMORY times 4");
  const auto refused = BrokerBacking::open(connection_, {"", mebibytes(32), ""});
  ASSERT_FALSE(refused) << "twice the limit is the least";
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_NE(refused.error().message.find("no addresses"), std::string::npos) << refused.error().message;
  EXPECT_EQ(broker_.slices_open(), 0U);
}

TEST_F(BrokerBackingTest, OfMoreThanAnyDeviceHasIsRefused) {
  const auto refused = BrokerBacking::open(connection_, {"", {std::uint64_t{1} << 62}, ""});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_EQ(broker_.slices_open(), 0U);
}

TEST_F(BrokerBackingTest, ObtainsWhatCanBeHadAsItIsWished) {
  broker_.most = mebibytes(6).count;
  const auto memory = open();
  const auto extents = memory->obtain({mebibytes(8), mebibytes(4), kPage, seconds(3)});
  ASSERT_TRUE(extents) << to_string(extents.error());
  EXPECT_EQ(sum_of(*extents), mebibytes(6));
  EXPECT_EQ(memory->committed(), mebibytes(6));
  const lane::Grow asked = broker_.requests().back();
  EXPECT_EQ(asked.parts[0].bytes, mebibytes(8).count);
  EXPECT_EQ(asked.parts[0].min_bytes, mebibytes(4).count);
  EXPECT_EQ(asked.parts[0].largest_extent, kPage.count);
  EXPECT_GT(asked.wait, 2'000'000'000U);
  EXPECT_LE(asked.wait, 3'000'000'000U);
  broker_.await_accepted(1);
}

TEST_F(BrokerBackingTest, ObtainsMoreWhateverItHas) {
  const auto memory = open();
  const auto first = obtain(*memory, mebibytes(4)), second = obtain(*memory, mebibytes(4));
  EXPECT_EQ(sum_of(second), mebibytes(4));
  EXPECT_EQ(memory->committed(), mebibytes(8));
  EXPECT_EQ(broker_.leases_out(), 4U);
}

TEST_F(BrokerBackingTest, TellsWhyNothingIsObtained) {
  broker_.most = 0;
  const auto memory = open();
  const auto refused = memory->obtain({kPage, kPage, {}, {}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_EQ(memory->committed(), Bytes{});
}

TEST_F(BrokerBackingTest, MapsExtentsWhereverTheyAreWantedAndTheirContentMovesWithThem) {
  broker_.extent_sizes = {8 << 20, 4 << 20, 2 << 20};
  const auto memory = open();
  const auto extents = obtain(*memory, mebibytes(14));
  const Address at = memory->properties().base + mebibytes(100).count;
  ASSERT_TRUE(memory->map(at, extents));
  put(at, 1);
  put(at + mebibytes(8).count, 2);
  put(at + mebibytes(14).count - 8, 3);
  ASSERT_TRUE(memory->unmap(at, mebibytes(14)));
  const Address there = memory->properties().base;
  const std::vector<Extent> turned{extents[2], extents[1], extents[0]};
  ASSERT_TRUE(memory->map(there, turned));
  EXPECT_EQ(word_at(there + kPage.count - 8), 3U);
  EXPECT_EQ(word_at(there + kPage.count), 2U);
  EXPECT_EQ(word_at(there + mebibytes(6).count), 1U);
  EXPECT_EQ(memory->committed(), mebibytes(14));
}

TEST_F(BrokerBackingTest, UnmapsAnyRunOfExtentsHoweverTheyWereMapped) {
  const auto memory = open();
  const auto first = obtain(*memory, mebibytes(4)), second = obtain(*memory, mebibytes(4));
  const Address at = memory->properties().base;
  ASSERT_TRUE(memory->map(at, first));
  ASSERT_TRUE(memory->map(at + mebibytes(4).count, second));
  put(at, 7);
  put(at + mebibytes(6).count, 8);
  ASSERT_TRUE(memory->unmap(at + kPage.count, mebibytes(4))) << "of either half a half";
  EXPECT_EQ(word_at(at), 7U);
  EXPECT_EQ(word_at(at + mebibytes(6).count), 8U);
  memory->give_back({first[1], second[0]});
  EXPECT_EQ(broker_.leases_out(), 2U);
  EXPECT_EQ(broker_.in_use(), mebibytes(4).count);
}

TEST_F(BrokerBackingTest, GivesBackToTheDriverAndToTheBroker) {
  const auto memory = open();
  auto extents = obtain(*memory, mebibytes(8));
  memory->give_back({extents[1], extents[2]});
  EXPECT_EQ(memory->committed(), mebibytes(4));
  EXPECT_EQ(broker_.leases_out(), 2U);
  EXPECT_EQ(broker_.in_use(), mebibytes(4).count);
  memory->give_back({extents[0], extents[3]});
  EXPECT_EQ(broker_.in_use(), 0U);
}

TEST_F(BrokerBackingTest, NeverGivesBackWhatIsMapped) {
  const auto memory = open();
  const auto extents = obtain(*memory, mebibytes(4));
  ASSERT_TRUE(memory->map(memory->properties().base, extents));
  memory->give_back(extents);
  EXPECT_EQ(broker_.leases_out(), 2U);
  put(memory->properties().base, 1);
  const std::array unknown{Extent{4711, kPage}};
  EXPECT_EQ(memory->map(memory->properties().base + mebibytes(8).count, unknown).error().code,
            Code::kInternal);
}

TEST_F(BrokerBackingTest, TellsTheBrokerBeforeItAsksForMoreWhatItCouldNotBeTold) {
  const auto memory = open();
  auto extents = obtain(*memory, mebibytes(8));
  broker_.refuse_return = [] { return failed(Code::kUnavailable, "busy"); };
  memory->give_back(std::move(extents));
  EXPECT_EQ(memory->committed(), Bytes{});
  EXPECT_EQ(broker_.leases_out(), 4U);
  broker_.refuse_return = nullptr;
  std::size_t out = 99;
  broker_.before_grant = [&] { out = broker_.leases_out(); };
  obtain(*memory, kPage);
  EXPECT_EQ(out, 0U);
}

TEST_F(BrokerBackingTest, ThatGoesGivesEverythingBackMappedOrNot) {
  {
    const auto memory = open();
    const auto extents = obtain(*memory, mebibytes(8));
    ASSERT_TRUE(memory->map(memory->properties().base, std::span(extents).first(2)));
    ASSERT_TRUE(memory->map(memory->properties().base + mebibytes(32).count, std::span(extents).last(1)));
  }
  EXPECT_EQ(broker_.leases_out(), 0U);
  EXPECT_EQ(broker_.slices_open(), 0U);
  EXPECT_EQ(broker_.in_use(), 0U);
}

TEST_F(BrokerBackingTest, IsMappedAndGivenBackWhileMoreIsWaitedFor) {
  const auto memory = open();
  auto extents = obtain(*memory, mebibytes(4));
  std::promise<void> asked, go_on;
  broker_.before_grant = [&] {
    asked.set_value();
    go_on.get_future().wait();
  };
  std::thread waiting([&] { EXPECT_EQ(sum_of(obtain(*memory, kPage)), kPage); });
  asked.get_future().wait();
  EXPECT_TRUE(memory->map(memory->properties().base, extents));
  EXPECT_TRUE(memory->unmap(memory->properties().base, mebibytes(4)));
  memory->give_back(std::move(extents));
  EXPECT_EQ(memory->committed(), Bytes{});
  go_on.set_value();
  waiting.join();
  EXPECT_EQ(memory->committed(), kPage);
}

TEST_F(BrokerBackingTest, ThatCannotBeTakenInGoesBack) {
  const auto memory = open();
  inject("cuMemImportFromShareableHandle fail UNKNOWN nth 2");
  EXPECT_FALSE(memory->obtain({mebibytes(6), mebibytes(6), {}, {}}));
  EXPECT_EQ(memory->committed(), Bytes{});
  EXPECT_EQ(broker_.leases_out(), 0U);
  EXPECT_EQ(broker_.in_use(), 0U);
  heal();
  EXPECT_EQ(sum_of(obtain(*memory, mebibytes(6))), mebibytes(6));
}

struct FailingMap : BrokerBackingTest, testing::WithParamInterface<const char*> {};

TEST_P(FailingMap, LeavesNothingMapped) {
  const auto memory = open();
  const auto extents = obtain(*memory, mebibytes(6));
  inject(GetParam());
  EXPECT_FALSE(memory->map(memory->properties().base, extents));
  heal();
  ASSERT_TRUE(memory->map(memory->properties().base, extents))
      << "the addresses and the extents are as before";
  put(memory->properties().base, 1);
  ASSERT_TRUE(memory->unmap(memory->properties().base, mebibytes(6)));
  memory->give_back(extents);
  EXPECT_EQ(broker_.in_use(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Calls, FailingMap,
                         testing::Values("cuMemMap fail UNKNOWN nth 1", "cuMemMap fail UNKNOWN nth 3",
                                         "cuMemSetAccess fail UNKNOWN nth 1"));

TEST_F(BrokerBackingTest, ExtentThatIsMappedTwiceShowsOneMemoryAndIsKeptUntilNeitherIs) {
  const auto memory = open();
  const auto extents = obtain(*memory, kPage);
  const Address there = memory->properties().base + mebibytes(8).count;
  ASSERT_TRUE(memory->map(memory->properties().base, extents));
  ASSERT_TRUE(memory->map(there, extents));
  put(memory->properties().base, 7);
  EXPECT_EQ(*reinterpret_cast<volatile std::uint64_t*>(there), 7U);
  ASSERT_TRUE(memory->unmap(memory->properties().base, kPage));
  memory->give_back(extents);
  EXPECT_EQ(broker_.leases_out(), 1U) << "one mapping is left";
  ASSERT_TRUE(memory->unmap(there, kPage));
  memory->give_back(extents);
  EXPECT_EQ(broker_.leases_out(), 0U);
}

TEST_F(BrokerBackingTest, ThatTheDriverDoesNotUnmapStaysAsItIs) {
  const auto memory = open();
  const auto extents = obtain(*memory, mebibytes(4));
  ASSERT_TRUE(memory->map(memory->properties().base, extents));
  inject("cuMemUnmap fail UNKNOWN");
  const auto kept = memory->unmap(memory->properties().base, mebibytes(4));
  ASSERT_FALSE(kept);
  EXPECT_NE(kept.error().message.find("could not be unmapped"), std::string::npos) << kept.error().message;
  put(memory->properties().base + kPage.count, 1);
  memory->give_back(extents);
  EXPECT_EQ(broker_.leases_out(), 2U) << "it is mapped: nobody else may have it";
  heal();
  EXPECT_TRUE(memory->unmap(memory->properties().base, mebibytes(4)));
}

// On the second device: what is mapped stays for as long as this program runs.
TEST_F(BrokerBackingTest, ThatTheDriverNeverUnmapsStaysOnLoanWhenItGoes) {
  auto memory = std::move(*BrokerBacking::open(connection_, {connection_->welcome().devices[2], {}, ""}));
  EXPECT_EQ(memory->properties().ordinal, 1);
  const auto extents = obtain(*memory, mebibytes(4));
  ASSERT_TRUE(memory->map(memory->properties().base, std::span(extents).first(1)));
  inject("cuMemUnmap fail UNKNOWN");
  memory.reset();
  EXPECT_EQ(broker_.leases_out(), 1U);
  EXPECT_EQ(broker_.slices_open(), 1U);
}

}  // namespace
}  // namespace gpumem::client::test
