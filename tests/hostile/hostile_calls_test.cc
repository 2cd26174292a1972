// Requests by gRPC with any name and any figure are answered with the right error, and change nothing.
#include "base/text/printable.h"
#include "tests/integration/hostile_fixture.h"
#include "tests/support/lanes/session_stream.h"

namespace gpumem::test {
namespace {

using grpc::StatusCode;

constexpr std::uint64_t kMost = ~std::uint64_t{0};
constexpr std::uint64_t kUnit = mebibytes(2).count;

// A session that asks for anything, and tells how it was answered.
struct Asker : SessionStream {
  explicit Asker(const std::string& folder) : SessionStream(folder) { open(); }
  static int code(const v1::SessionAnswer& answer) { return answer.failed().code(); }
  static v1::SessionRequest growth_of(std::uint64_t slice, std::uint64_t bytes, std::uint64_t wait_ms = 0) {
    v1::SessionRequest request = growth(slice, {bytes});
    request.mutable_grow()->set_wait_ms(wait_ms);
    return request;
  }
  v1::SessionAnswer grow(std::uint64_t slice, std::uint64_t bytes, std::uint64_t wait_ms = 0) {
    return ask(growth_of(slice, bytes, wait_ms));
  }
  int give_back(std::uint64_t slice, const std::vector<std::uint64_t>& leases) {
    v1::SessionRequest request;
    request.mutable_give_back()->set_slice(slice);
    request.mutable_give_back()->mutable_leases()->Add(leases.begin(), leases.end());
    return code(ask(request));
  }
  int close_slice(std::uint64_t slice) {
    v1::SessionRequest request;
    request.mutable_close_slice()->set_slice(slice);
    return code(ask(request));
  }
  v1::SessionAnswer open_slice_of(const std::string& device, std::uint64_t limit, const std::string& label) {
    v1::SessionRequest request;
    request.mutable_open_slice()->set_device(device);
    request.mutable_open_slice()->set_limit(limit);
    request.mutable_open_slice()->set_label(label);
    return ask(request);
  }
  const std::string& device() const { return opened().devices(0).uuid(); }
};

// One that has `bytes` on loan in `slice`.
struct Leaseholder : Asker {
  Leaseholder(const std::string& folder, std::uint64_t bytes)
      : Asker(folder), slice(open_slice()), granted(grow(slice, bytes).granted()) {
    for (const v1::Lease& lease : granted.leases()) leases.push_back(lease.id());
  }
  void give_all_back() { EXPECT_EQ(give_back(slice, leases), StatusCode::OK); }
  std::uint64_t slice;
  v1::GrowResponse granted;
  std::vector<std::uint64_t> leases;
};

struct HostileCalls : HostileTest {
  using HostileTest::HostileTest;
  Asker asker() { return Asker(broker_.folder()); }
  Leaseholder borrower(std::uint64_t bytes = 4 * kUnit) { return Leaseholder(broker_.folder(), bytes); }
  void expect_active(std::uint64_t bytes) {
    EXPECT_TRUE(eventually([&] { return broker_.device().active() == bytes; })) << broker_.device().active();
  }
};

TEST_F(HostileCalls, ForForeignSlicesFindNothing) {
  Leaseholder other = borrower();
  Asker one = asker();
  for (const std::uint64_t slice : {other.slice, std::uint64_t{0}, std::uint64_t{12'345}, kMost}) {
    EXPECT_EQ(one.code(one.grow(slice, kUnit)), StatusCode::NOT_FOUND);
    EXPECT_EQ(one.close_slice(slice), StatusCode::NOT_FOUND);
    EXPECT_EQ(one.give_back(slice, other.leases), StatusCode::NOT_FOUND);
  }
  expect_active(4 * kUnit);
  other.give_all_back();
}

TEST_F(HostileCalls, ReturnOnlyTheirOwnLeases) {
  Leaseholder one = borrower(7 * kUnit);  // several extents
  Leaseholder other = borrower();
  ASSERT_GT(one.leases.size(), 1U);
  const std::uint64_t own = one.leases[0], foreign = other.leases[0];
  for (const auto& leases : std::vector<std::vector<std::uint64_t>>{
           {own, foreign}, {own, own}, {own, 0}, {own, kMost}, {own, 4711}}) {
    EXPECT_EQ(one.give_back(one.slice, leases), StatusCode::NOT_FOUND);
  }
  EXPECT_EQ(one.give_back(one.open_slice(), {own}), StatusCode::NOT_FOUND) << "another slice's";
  expect_active(11 * kUnit);
  EXPECT_EQ(one.give_back(one.slice, {}), StatusCode::OK);
  one.give_all_back();
  EXPECT_EQ(one.give_back(one.slice, {own}), StatusCode::NOT_FOUND) << "given back before";
  other.give_all_back();
}

TEST_F(HostileCalls, ReturnOfTwentyThousandLeasesIsRefusedLikeAnyOther) {
  Asker one = asker();
  std::vector<std::uint64_t> many(20'000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = i;
  EXPECT_EQ(one.give_back(one.open_slice(), many), StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(one.ask(ping()).has_done());
}

TEST_F(HostileCalls, OfMoreThan64KiBEndTheirStreamAlone) {
  Asker one = asker(), other = asker();
  one.open_slice_of(std::string(1 << 16, 'x'), 0, "");
  EXPECT_EQ(one.end().error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(other.ask(ping()).has_done());
}

TEST_F(HostileCalls, ForImpossibleSizesAreRefused) {
  Asker one = asker();
  const std::uint64_t slice = one.open_slice();
  for (const std::uint64_t bytes : {std::uint64_t{0}, kMost, kMost - kUnit + 2})
    EXPECT_EQ(one.code(one.grow(slice, bytes)), StatusCode::INVALID_ARGUMENT) << bytes;
  for (const std::uint64_t bytes :
       {kPool.count + 1, std::uint64_t{1} << 63, kMost - kUnit + 1, kMost - kUnit}) {
    const v1::SessionAnswer refused = one.grow(slice, bytes, kMost);
    EXPECT_EQ(one.code(refused), StatusCode::RESOURCE_EXHAUSTED) << bytes;
    EXPECT_NE(refused.failed().denial().reason(), v1::Denial::REASON_NO_MEMORY) << "no waiting could help";
  }
  EXPECT_EQ(broker_.device().free(), kPool.count);
}

TEST_F(HostileCalls, WithSizesBeyondThePoolAreRefused) {
  Leaseholder one = borrower(kUnit);
  for (const std::uint64_t bytes : {kMost - kUnit + 1, kMost - 2 * kUnit + 1, kPool.count})
    EXPECT_EQ(one.code(one.grow(one.slice, bytes)), StatusCode::RESOURCE_EXHAUSTED) << bytes;
  one.give_all_back();
}

TEST_F(HostileCalls, ForOneByteGetOneUnit) {
  Leaseholder one = borrower(1);
  EXPECT_EQ(one.granted.leases_size(), 1);
  EXPECT_EQ(one.granted.leases(0).size(), kUnit);
  one.give_all_back();
}

TEST_F(HostileCalls, ForImpossibleSlicesAreRefused) {
  Asker one = asker();
  const std::string device = one.device();
  const auto code = [&](const std::string& uuid, std::uint64_t limit, const std::string& label) {
    return one.code(one.open_slice_of(uuid, limit, label));
  };
  EXPECT_EQ(code("", 0, ""), StatusCode::NOT_FOUND);
  EXPECT_EQ(code("GPU-00000000-0000-0000-0000-000000000000", 0, ""), StatusCode::NOT_FOUND);
  EXPECT_EQ(code(device + " ", 0, ""), StatusCode::NOT_FOUND);
  EXPECT_EQ(code(std::string(60'000, 'x'), 0, ""), StatusCode::INVALID_ARGUMENT);
  for (const std::uint64_t limit : {kMost, std::uint64_t{1} << 63, kPool.count + 1})
    EXPECT_EQ(code(device, limit, ""), StatusCode::INVALID_ARGUMENT) << limit;
  EXPECT_EQ(code(device, 0, std::string(kLabelBytes + 1, 'x')), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(device, 0, std::string(60'000, 'x')), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(device, 0, "a\nb"), StatusCode::INVALID_ARGUMENT) << "labels are shown to others";
  EXPECT_TRUE(broker_.sessions()[0].slices().empty());
  EXPECT_EQ(one.open_slice_of(device, 1, std::string(kLabelBytes, 'x')).slice_opened().limit(), kUnit);
}

TEST_F(HostileCalls, OpenNoMoreSlicesThanASessionMayHave) {
  Asker one = asker();
  for (int i = 0; i < 64; ++i) EXPECT_NE(one.open_slice(), 0U);
  EXPECT_EQ(one.code(one.open_slice_of(one.device(), 0, "")), StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(HostileCalls, DoNotCloseASliceThatHoldsMemory) {
  Leaseholder one = borrower();
  EXPECT_EQ(one.close_slice(one.slice), StatusCode::FAILED_PRECONDITION);
  one.give_all_back();
  EXPECT_EQ(one.close_slice(one.slice), StatusCode::OK);
  EXPECT_EQ(one.close_slice(one.slice), StatusCode::NOT_FOUND);
}

TEST_F(HostileCalls, ThatAreCancelledLeaveNothingBehind) {
  Asker one = asker();
  const std::uint64_t slice = one.open_slice();
  for (int i = 0; i < 50; ++i) {
    v1::SessionRequest cancel;
    cancel.mutable_cancel()->set_growth(one.send(Asker::growth_of(slice, kUnit)));
    EXPECT_TRUE(one.ask(cancel).has_done());
  }
  EXPECT_TRUE(one.ask(ping()).has_done());
  EXPECT_TRUE(one.leave().ok());  // grants from before the cancel end with the session
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
  Asker one = asker();
  const std::uint64_t slice = one.open_slice();
  const std::uint64_t waits = one.send(Asker::growth_of(slice, kUnit, kMost));
  await_waiters(1);
  EXPECT_TRUE(one.receive(waits).has_waiting());
  EXPECT_EQ(one.close_slice(slice), StatusCode::FAILED_PRECONDITION);
  v1::SessionRequest cancel;
  cancel.mutable_cancel()->set_growth(waits);
  EXPECT_TRUE(one.ask(cancel).has_done());
  EXPECT_EQ(one.code(one.receive(waits)), StatusCode::CANCELLED);
  await_waiters(0);
  EXPECT_EQ(one.close_slice(slice), StatusCode::OK);
}

TEST_F(HostileWaits, AreNoMoreThanASessionMayHaveAndEndWithIt) {
  constexpr std::size_t kMostWaiting = 64;
  Asker one = asker();
  const std::uint64_t slice = one.open_slice();
  for (std::size_t i = 0; i < kMostWaiting; ++i)
    EXPECT_NE(one.send(Asker::growth_of(slice, kUnit, kMost)), 0U);
  await_waiters(kMostWaiting);
  EXPECT_EQ(one.code(one.grow(slice, kUnit, kMost)), StatusCode::RESOURCE_EXHAUSTED);
  one.cancel();
  EXPECT_EQ(one.end().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(eventually([&] { return broker_.device().waiting() == 0; }));
}

}  // namespace
}  // namespace gpumem::test
