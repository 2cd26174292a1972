// Calls with any token, any name and any figure are answered with the right error, and change nothing.
#include <future>

#include "proto/lane.h"
#include "tests/integration/hostile_fixture.h"

namespace gpumem::test {
namespace {

using grpc::StatusCode;

constexpr std::uint64_t kMost = ~std::uint64_t{0};
constexpr std::uint64_t kUnit = mebibytes(2).count;

std::vector<std::uint64_t> ids(const v1::GrowResponse& granted) {
  std::vector<std::uint64_t> ids;
  for (const v1::Lease& lease : granted.leases()) ids.push_back(lease.id());
  return ids;
}

struct HostileCalls : HostileTest {
  using HostileTest::HostileTest;
  // A session that has `bytes` on loan in `slice`.
  struct Borrower : RawSession {
    Borrower(const std::string& folder, std::uint64_t bytes)
        : RawSession(folder), slice(open_slice()), granted(grow(slice, bytes)) {
      EXPECT_TRUE(lane.accept(granted.grant()));
    }
    void give_back() {
      lane.descriptors().clear();
      EXPECT_TRUE(calls.give_back(slice, ids(granted)).ok());
    }
    std::uint64_t slice;
    v1::GrowResponse granted;
  };
  Borrower borrower(std::uint64_t bytes = 4 * kUnit) { return Borrower(broker_.folder(), bytes); }
  void expect_active(std::uint64_t bytes) {
    EXPECT_TRUE(eventually([&] { return broker_.device().active() == bytes; })) << broker_.device().active();
  }
};

TEST_F(HostileCalls, WithoutALivingSessionAreUnauthenticated) {
  std::string ended;
  {
    auto past = session();
    ended = past.welcome.token();
    EXPECT_TRUE(past.calls.ping().ok());
  }
  EXPECT_TRUE(eventually([&] { return broker_.sessions().empty(); }));
  const std::vector<std::optional<std::string>> tokens{
      std::nullopt, "", "0", ended, std::string(ended.size(), '0'), std::string(4000, 'f')};
  for (const auto& token : tokens) {
    RawCalls calls(broker_.folder(), token);
    v1::OpenSliceResponse opened;
    v1::GrowResponse granted;
    for (const grpc::Status& status :
         {calls.ping(), calls.open_slice("GPU-x", 0, &opened), calls.grow(1, kUnit, kMost, &granted),
          calls.give_back(1, {1}), calls.close_slice(1)}) {
      EXPECT_EQ(status.error_code(), StatusCode::UNAUTHENTICATED) << status.error_message();
    }
  }
}

TEST_F(HostileCalls, ForForeignSlicesFindNothing) {
  auto other = borrower();
  auto one = session();
  v1::GrowResponse granted;
  for (const std::uint64_t slice : {other.slice, std::uint64_t{0}, std::uint64_t{12'345}, kMost}) {
    EXPECT_EQ(one.calls.grow(slice, kUnit, 0, &granted).error_code(), StatusCode::NOT_FOUND);
    EXPECT_EQ(one.calls.close_slice(slice).error_code(), StatusCode::NOT_FOUND);
    EXPECT_EQ(one.calls.give_back(slice, ids(other.granted)).error_code(), StatusCode::NOT_FOUND);
  }
  expect_active(4 * kUnit);
  other.give_back();
}

TEST_F(HostileCalls, ReturnOnlyTheirOwnLeases) {
  auto one = borrower(7 * kUnit);  // several extents
  auto other = borrower();
  ASSERT_GT(one.granted.leases_size(), 1);
  const std::uint64_t own = one.granted.leases(0).id(), foreign = other.granted.leases(0).id();
  for (const auto& leases : std::vector<std::vector<std::uint64_t>>{
           {own, foreign}, {own, own}, {own, 0}, {own, kMost}, {own, 4711}}) {
    EXPECT_EQ(one.calls.give_back(one.slice, leases).error_code(), StatusCode::NOT_FOUND);
  }
  EXPECT_EQ(one.calls.give_back(one.open_slice(), {own}).error_code(), StatusCode::NOT_FOUND)
      << "another slice's";
  expect_active(11 * kUnit);
  EXPECT_TRUE(one.calls.give_back(one.slice, {}).ok());
  one.give_back();
  EXPECT_EQ(one.calls.give_back(one.slice, {own}).error_code(), StatusCode::NOT_FOUND) << "given back before";
  other.give_back();
}

TEST_F(HostileCalls, ReturnOfAMillionLeasesIsRefusedLikeAnyOther) {
  auto one = session();
  std::vector<std::uint64_t> many(1'000'000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = i;
  EXPECT_FALSE(one.calls.give_back(one.open_slice(), many).ok());
}

TEST_F(HostileCalls, ForImpossibleSizesAreRefused) {
  auto one = session();
  const std::uint64_t slice = one.open_slice();
  v1::GrowResponse granted;
  for (const std::uint64_t bytes : {std::uint64_t{0}, kMost, kMost - kUnit + 2}) {
    EXPECT_EQ(one.calls.grow(slice, bytes, 0, &granted).error_code(), StatusCode::INVALID_ARGUMENT) << bytes;
  }
  for (const std::uint64_t bytes :
       {kPool.count + 1, std::uint64_t{1} << 63, kMost - kUnit + 1, kMost - kUnit}) {
    v1::Denial denial;
    EXPECT_EQ(one.calls.grow(slice, bytes, kMost, &granted, &denial).error_code(),
              StatusCode::RESOURCE_EXHAUSTED)
        << bytes;
    EXPECT_NE(denial.reason(), v1::Denial::REASON_NO_MEMORY) << "no waiting could help";
  }
  EXPECT_EQ(broker_.device().free(), kPool.count);
}

TEST_F(HostileCalls, WithSizesBeyondThePoolAreRefused) {
  auto one = borrower(kUnit);
  v1::GrowResponse granted;
  for (const std::uint64_t bytes : {kMost - kUnit + 1, kMost - 2 * kUnit + 1, kPool.count}) {
    EXPECT_EQ(one.calls.grow(one.slice, bytes, 0, &granted).error_code(), StatusCode::RESOURCE_EXHAUSTED)
        << bytes;
  }
  one.give_back();
}

TEST_F(HostileCalls, ForOneByteGetOneUnit) {
  auto one = borrower(1);
  EXPECT_EQ(one.granted.leases_size(), 1);
  EXPECT_EQ(one.granted.leases(0).size(), kUnit);
  one.give_back();
}

TEST_F(HostileCalls, ForImpossibleSlicesAreRefused) {
  auto one = session();
  const std::string& device = one.welcome.devices(0);
  v1::OpenSliceResponse opened;
  const auto code = [&](const std::string& uuid, std::uint64_t limit, const std::string& label) {
    return one.calls.open_slice(uuid, limit, &opened, label).error_code();
  };
  EXPECT_EQ(code("", 0, ""), StatusCode::NOT_FOUND);
  EXPECT_EQ(code("GPU-00000000-0000-0000-0000-000000000000", 0, ""), StatusCode::NOT_FOUND);
  EXPECT_EQ(code(device + " ", 0, ""), StatusCode::NOT_FOUND);
  EXPECT_EQ(code(std::string(1'000'000, 'x'), 0, ""), StatusCode::INVALID_ARGUMENT);
  for (const std::uint64_t limit : {kMost, std::uint64_t{1} << 63, kPool.count + 1}) {
    EXPECT_EQ(code(device, limit, ""), StatusCode::INVALID_ARGUMENT) << limit;
  }
  EXPECT_EQ(code(device, 0, std::string(kLabelBytes + 1, 'x')), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(device, 0, std::string(1'000'000, 'x')), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(device, 0, "a\nb"), StatusCode::INVALID_ARGUMENT) << "labels are shown to others";
  EXPECT_TRUE(broker_.sessions()[0].slices().empty());
  EXPECT_EQ(code(device, 1, std::string(kLabelBytes, 'x')), StatusCode::OK);
  EXPECT_EQ(opened.limit(), kUnit);
}

TEST_F(HostileCalls, OpenNoMoreSlicesThanASessionMayHave) {
  auto one = session();
  for (int i = 0; i < 64; ++i) EXPECT_NE(one.open_slice(), 0U);
  v1::OpenSliceResponse opened;
  EXPECT_EQ(one.calls.open_slice(one.welcome.devices(0), 0, &opened).error_code(),
            StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(HostileCalls, DoNotCloseASliceThatHoldsMemory) {
  auto one = borrower();
  EXPECT_EQ(one.calls.close_slice(one.slice).error_code(), StatusCode::FAILED_PRECONDITION);
  one.give_back();
  EXPECT_TRUE(one.calls.close_slice(one.slice).ok());
  EXPECT_EQ(one.calls.close_slice(one.slice).error_code(), StatusCode::NOT_FOUND);
}

TEST_F(HostileCalls, ThatAreCancelledLeaveNothingBehind) {
  kept_connections_ = 1;
  auto one = session();
  const std::uint64_t slice = one.open_slice();
  auto stub = v1::Broker::NewStub(connect_to_api(broker_.folder()));
  for (int i = 0; i < 50; ++i) {
    grpc::ClientContext context;
    context.AddMetadata(kSessionMetadataKey, one.welcome.token());
    const v1::GrowRequest request = grow_request(slice, kUnit);
    v1::GrowResponse granted;
    auto call = std::async(std::launch::async, [&] { return stub->Grow(&context, request, &granted); });
    context.TryCancel();
    call.get();
  }
  EXPECT_TRUE(one.calls.ping().ok());
  EXPECT_TRUE(one.lane.goodbye());  // grants from before the cancel end with the session
}

// This process, which is root, waits for memory that another user's process has.
struct HostileWaits : HostileCalls {
  HostileWaits() : HostileCalls({.config = shared()}) {}
  void SetUp() override {
    GPUMEM_NEEDS_ROOT();
    HostileCalls::SetUp();
    holder_ = client_with(kPool, test_user(10'001));
  }
  void TearDown() override {
    holder_.reset();
    if (!IsSkipped()) HostileCalls::TearDown();
  }
  std::unique_ptr<ClientProcess> holder_;
};

TEST_F(HostileWaits, ForeverAreWithdrawnByACancel) {
  kept_connections_ = 1;
  auto one = session();
  const std::uint64_t slice = one.open_slice();
  const v1::GrowRequest request = grow_request(slice, kUnit, kMost);
  auto stub = v1::Broker::NewStub(connect_to_api(broker_.folder()));
  grpc::ClientContext context;
  context.AddMetadata(kSessionMetadataKey, one.welcome.token());
  v1::GrowResponse granted;
  auto call = std::async(std::launch::async, [&] { return stub->Grow(&context, request, &granted); });
  await_waiters(1);
  EXPECT_EQ(one.calls.close_slice(slice).error_code(), StatusCode::FAILED_PRECONDITION);
  context.TryCancel();
  EXPECT_EQ(call.get().error_code(), StatusCode::CANCELLED);
  await_waiters(0);
  EXPECT_TRUE(one.calls.close_slice(slice).ok());
}

TEST_F(HostileWaits, AreNoMoreThanASessionMayHaveAndEndWithIt) {
  constexpr std::size_t kMostWaiting = 64;
  auto one = session();
  const std::uint64_t slice = one.open_slice();
  std::vector<std::future<grpc::Status>> waiting;
  for (std::size_t i = 0; i < kMostWaiting; ++i) {
    waiting.push_back(std::async(std::launch::async, [&] {
      v1::GrowResponse granted;
      return one.calls.grow(slice, kUnit, kMost, &granted);
    }));
  }
  await_waiters(kMostWaiting);
  v1::GrowResponse granted;
  EXPECT_EQ(one.calls.grow(slice, kUnit, kMost, &granted).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  one.lane.close();
  for (auto& call : waiting) EXPECT_EQ(call.get().error_code(), StatusCode::CANCELLED);
  EXPECT_EQ(broker_.device().waiting(), 0U);
}

}  // namespace
}  // namespace gpumem::test
