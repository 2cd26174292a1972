// An allocator of a session, lent to by a broker that the tests play.
#include "gpumem/allocator.h"

#include <sys/wait.h>

#include "tests/support/eventually.h"
#include "tests/unit/client/slice_fixture.h"

namespace gpumem::client::test {
namespace {

using gpumem::test::eventually;
using std::chrono::hours;
using std::chrono::seconds;

struct SessionsAllocator : SliceTest {
  /// One that gives nothing back of its own accord.
  Allocator open_allocator() {
    auto allocator = session_->open_allocator({.idle = hours(1)});
    EXPECT_TRUE(allocator) << to_string(allocator.error());
    return std::move(*allocator);
  }
  static std::uint64_t allocate(Allocator& allocator, Bytes bytes) {
    const auto address = allocator.allocate(bytes);
    EXPECT_TRUE(address) << to_string(address.error());
    auto* const word = reinterpret_cast<volatile std::uint64_t*>(*address);
    *word = 1;
    return *address;
  }
};

/// The error of every call of `allocator`, if all are equal.
std::optional<Error> answer_of_all(Allocator& allocator) {
  const std::vector<Error> errors{
      allocator.allocate(mebibytes(1)).error(),
      allocator.allocate({256}).error(),
      allocator.deallocate(4096, {256}).error(),
      allocator.extend(4096, {256}, {512}).error(),
      allocator.record_stream(4096, nullptr).error(),
      allocator.release_stream(nullptr).error(),
      allocator.trim().error(),
      allocator.tag("name").error(),
      allocator.statistics().error(),
      allocator.reset_peaks().error(),
      allocator.snapshot().error(),
      allocator.close().error(),
  };
  for (const Error& error : errors) {
    if (error.code != errors.front().code || error.message != errors.front().message) return std::nullopt;
  }
  return errors.front();
}

TEST_F(SessionsAllocator, IsOnTheDeviceThatIsNamedAndWithinItsLimit) {
  auto allocator = session_->open_allocator({.device = device(1), .limit = mebibytes(8)});
  ASSERT_TRUE(allocator) << to_string(allocator.error());
  EXPECT_EQ(allocator->device(), device(1));
  EXPECT_EQ(allocator->ordinal(), 1);
  EXPECT_EQ(allocator->limit(), mebibytes(8));
  EXPECT_EQ(allocator->granularity(), kPage);
  EXPECT_EQ(session_->open_allocator({.device = "nonsense"}).error().code, Code::kInvalidArgument);
}

TEST_F(SessionsAllocator, ThatGoesGivesEverythingBack) {
  {
    Allocator allocator = open_allocator();
    allocate(allocator, mebibytes(5));
    EXPECT_GE(broker_.leases_out(), 3U);
  }
  EXPECT_EQ(broker_.leases_out(), 0U);
  EXPECT_EQ(broker_.slices_open(), 0U);
  EXPECT_EQ(broker_.in_use(), 0U);
}

TEST_F(SessionsAllocator, MeetsPressureWithWhatItCanSpare) {
  Allocator allocator = open_allocator();
  const std::uint64_t kept = allocate(allocator, mebibytes(4)), spare = allocate(allocator, mebibytes(8));
  ASSERT_TRUE(allocator.deallocate(spare, mebibytes(8)));
  broker_.ask_back(mebibytes(6), seconds(5));
  EXPECT_TRUE(eventually([&] { return broker_.asked_back() == 0; })) << broker_.asked_back();
  EXPECT_EQ(broker_.spent(), 0U);
  *reinterpret_cast<volatile std::uint64_t*>(kept) = 2;
  broker_.ask_back(mebibytes(32), seconds(5));
  broker_.await_spent(1);
  EXPECT_GE(broker_.leases_out(), 2U) << "what is in use stays";
  EXPECT_TRUE(allocator.deallocate(kept, mebibytes(4)));
}

TEST_F(SessionsAllocator, ThatGoesWhilePressureIsMetIsNotTouchedAgain) {
  for (int round = 0; round < 10; ++round) {
    Allocator allocator = open_allocator();
    ASSERT_TRUE(allocator.deallocate(allocate(allocator, mebibytes(8)), mebibytes(8)));
    broker_.ask_back(mebibytes(4), seconds(5));
  }
  EXPECT_EQ(broker_.leases_out(), 0U);
}

TEST_F(SessionsAllocator, ThatHasBeenMovedFromSaysSo) {
  Allocator allocator = open_allocator();
  const Allocator taken = std::move(allocator);
  const auto answer = answer_of_all(allocator);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->code, Code::kFailedPrecondition);
  EXPECT_EQ(answer->message, "the allocator has been moved from");
  EXPECT_EQ(allocator.limit(), Bytes{});
  EXPECT_EQ(allocator.device(), "");
  EXPECT_EQ(allocator.c_handle(), nullptr);
}

}  // namespace
}  // namespace gpumem::client::test
