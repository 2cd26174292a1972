// Slices whose broker does not answer for a while.
#include <future>
#include <mutex>

#include "tests/support/eventually.h"
#include "tests/unit/client/slice_fixture.h"

namespace gpumem::client::test {
namespace {

using gpumem::test::eventually;
using gpumem::test::kPatience;
using std::chrono::milliseconds;

struct SilentBroker : testing::Test {
  Slice open() { return std::move(*session_->open_slice()); }

  FakeBroker broker_;
  Result<Session> session_ = Session::connect({broker_.folder(), "test", milliseconds(300)});
};

TEST_F(SilentBroker, CostsNoMemoryThatIsMapped) {
  Slice slice = open();
  ASSERT_TRUE(slice.grow(mebibytes(4)));
  broker_.stop_answering();
  const auto refused = slice.grow(mebibytes(8));
  EXPECT_EQ(refused.error().code, Code::kUnavailable) << "not that there is no memory";
  EXPECT_TRUE(is_usable(slice));
  EXPECT_EQ(slice.shrink(mebibytes(2)).error().code, Code::kUnavailable);
  EXPECT_EQ(slice.committed(), mebibytes(2));
  broker_.start_answering();
  EXPECT_TRUE(eventually([&] { return session_->ping().has_value(); }));
  EXPECT_TRUE(eventually([&] { return slice.grow(mebibytes(8)).has_value(); }));
  EXPECT_TRUE(is_usable(slice));
  EXPECT_TRUE(eventually([&] {
    return session_->ping() && broker_.growths() >= 3 && broker_.leases_out() == 4;
  })) << "what came late was given back, and what could not be told was told";
}

TEST_F(SilentBroker, GetsASliceThatHasGoneMeanwhileBackLater) {
  {
    Slice slice = open();
    ASSERT_TRUE(slice.grow(mebibytes(4)));
    broker_.stop_answering();
  }
  EXPECT_EQ(broker_.leases_out(), 2U);
  broker_.start_answering();
  EXPECT_TRUE(eventually([&] { return session_->ping().has_value(); }));
  EXPECT_TRUE(eventually([&] { return broker_.leases_out() == 0 && broker_.slices_open() == 0; }));
}

TEST_F(SilentBroker, GrowthThatWaitsForAnothersEndsInItsOwnTime) {
  Slice slice = open();
  std::promise<void> waiting;
  std::once_flag is_told;  // a request may be repeated where the broker's word comes late
  broker_.refuse_growth = [&](const FakeBroker::IsCancelled& is_cancelled) {
    std::call_once(is_told, [&] { waiting.set_value(); });
    while (!is_cancelled()) std::this_thread::yield();
    return failed(Code::kCancelled, "cancelled");
  };
  std::stop_source stop;
  auto first = std::async(std::launch::async, [&] {
    return slice.grow(mebibytes(4), {.wait = std::chrono::minutes(10), .stop = stop.get_token()});
  });
  waiting.get_future().wait();
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(slice.grow(mebibytes(4)).error().code, Code::kDeadlineExceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - before, kPatience);
  stop.request_stop();
  EXPECT_EQ(first.get().error().code, Code::kCancelled);
}

}  // namespace
}  // namespace gpumem::client::test
