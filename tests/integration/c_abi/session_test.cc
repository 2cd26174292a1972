// Sessions through the C ABI.
#include <atomic>

#include "tests/integration/c_abi/broker.h"

namespace gpumem::test {
namespace {

using CSession = CAbiTest;

TEST_F(CSession, NamesItselfAndReachesTheBroker) {
  EXPECT_NE(gpumem_session_id(session_), 0U);
  EXPECT_NE(std::string(gpumem_session_tenant(session_)), "");
  EXPECT_TRUE(ok(gpumem_session_ping(session_)));
  const auto sessions = broker().sessions();
  ASSERT_EQ(sessions.size(), 1U);
  EXPECT_EQ(sessions[0].label(), "test");
}

TEST_F(CSession, ShowsTheUsageOfEveryDeviceUntilTheVisitorHasEnough) {
  const auto visitor = [](const gpumem_usage* usage, void* context) {
    EXPECT_EQ(usage->struct_size, sizeof(gpumem_usage));
    EXPECT_EQ(usage->pool, kPool.count);
    EXPECT_EQ(usage->free, kPool.count);
    EXPECT_EQ(usage->pressure + static_cast<std::uint64_t>(usage->pressure_deadline_ms), 0U);
    EXPECT_EQ(std::string(usage->device).substr(0, 4), "GPU-");
    return ++*static_cast<int*>(context) < 1;
  };
  int seen = 0;
  EXPECT_TRUE(ok(gpumem_session_usage(session_, visitor, &seen)));
  EXPECT_EQ(seen, 1);
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_session_usage(session_, nullptr, nullptr), "visitor"));
}

TEST_F(CSession, ChargesMemoryHeldPastTheBroker) {
  const std::string device = broker().device().uuid();
  EXPECT_TRUE(ok(gpumem_session_charge(session_, device.c_str(), 1 << 20)));
  EXPECT_TRUE(ok(gpumem_session_charge(session_, device.c_str(), 0)));
  EXPECT_TRUE(fails(GPUMEM_NOT_FOUND,
                    gpumem_session_charge(session_, "GPU-00000000-0000-0000-0000-000000000001", 1)));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_session_charge(session_, device.c_str(), UINT64_MAX)));
  EXPECT_TRUE(fails(GPUMEM_INVALID_ARGUMENT, gpumem_session_charge(session_, nullptr, 1), "device"));
}

TEST_F(CSession, ItsHandlerIsAskedForMemory) {
  GPUMEM_NEEDS_ROOT();
  gpumem_slice* slice = open_slice();
  EXPECT_TRUE(ok(gpumem_slice_grow(slice, kPool.count, nullptr, nullptr)));
  const auto handler = [](const gpumem_pressure* pressure, void* context) -> std::uint64_t {
    EXPECT_EQ(pressure->struct_size, sizeof(gpumem_pressure));
    EXPECT_GT(pressure->bytes, 0U);
    EXPECT_GT(pressure->deadline_ms, 0);
    std::uint64_t released = 0;
    EXPECT_TRUE(ok(gpumem_slice_release(static_cast<gpumem_slice*>(context), pressure->bytes, 0, &released)));
    return released;
  };
  EXPECT_TRUE(ok(gpumem_session_on_pressure(session_, handler, slice)));
  ClientProcess other(broker().folder(), ClientOptions{.user = test_user(10'001)});
  EXPECT_TRUE(succeeded(other.connect()));
  EXPECT_TRUE(succeeded(other.open("a")));
  EXPECT_TRUE(succeeded(other.grow("a", mebibytes(64), std::chrono::seconds(60))));
  EXPECT_TRUE(ok(gpumem_session_on_pressure(session_, nullptr, nullptr)));
  EXPECT_EQ(other.leave(), 0);
}

TEST_F(CSession, EndsWithTheLastOfItsHandles) {
  gpumem_slice* slice = open_slice();
  gpumem_allocator* allocator = open_allocator();
  EXPECT_TRUE(ok(gpumem_session_close(session_)));
  EXPECT_TRUE(ok(gpumem_slice_grow(slice, 1, nullptr, nullptr))) << "slices go on";
  EXPECT_EQ(broker().sessions().size(), 1U);
  EXPECT_TRUE(ok(gpumem_slice_close(slice)));
  EXPECT_TRUE(ok(gpumem_allocator_close(allocator)));
  EXPECT_TRUE(eventually([] { return broker().sessions().empty(); })) << broker().unrest();
}

TEST_F(CSession, HandlerMayCloseItsOwnSession) {
  GPUMEM_NEEDS_ROOT();
  gpumem_slice* slice = open_slice();
  EXPECT_TRUE(ok(gpumem_slice_grow(slice, kPool.count, nullptr, nullptr)));
  struct Both {
    gpumem_session* session;
    gpumem_slice* slice;
    std::atomic<bool> closed = false;
  } both{session_, slice};
  const auto handler = [](const gpumem_pressure*, void* context) -> std::uint64_t {
    auto* own = static_cast<Both*>(context);
    EXPECT_TRUE(ok(gpumem_slice_close(own->slice)));
    EXPECT_TRUE(ok(gpumem_session_close(own->session)));
    own->closed = true;
    return kPool.count;
  };
  EXPECT_TRUE(ok(gpumem_session_on_pressure(session_, handler, &both)));
  ClientProcess other(broker().folder(), ClientOptions{.user = test_user(10'001)});
  EXPECT_TRUE(succeeded(other.connect()));
  EXPECT_TRUE(succeeded(other.open("a")));
  EXPECT_TRUE(succeeded(other.grow("a", mebibytes(64), std::chrono::seconds(60))));
  // The slice's memory is free before its session is: the handler may still be at work.
  ASSERT_TRUE(eventually([&] { return both.closed.load(); }));
  EXPECT_TRUE(fails(GPUMEM_FAILED_PRECONDITION, gpumem_session_ping(session_), "closed"));
  EXPECT_EQ(other.leave(), 0);
}

}  // namespace
}  // namespace gpumem::test
