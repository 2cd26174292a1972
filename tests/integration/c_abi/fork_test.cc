// The process's own session and allocators in forked children. The driver is never started in this process,
// whose children could not use it then.
#include <atomic>
#include <cstdlib>
#include <thread>

#include "tests/integration/c_abi/broker.h"

namespace gpumem::test {
namespace {

constexpr std::uint64_t kLimit = 8U << 20;

/// PyTorch's pair borrows what the limit allows and no more.
bool borrows_within(std::uint64_t limit) {
  void* const within = gpumem_torch_alloc(limit / 2, 0, nullptr);
  if (within == nullptr) return false;
  gpumem_torch_free(within, limit / 2, 0, nullptr);
  try {
    (void)gpumem_torch_alloc(2 * limit, 0, nullptr);
  } catch (const std::runtime_error& error) {
    return std::string(error.what()).find("limit") != std::string::npos;
  }
  return false;
}

gpumem_status configure(std::uint64_t limit) {
  const std::string folder = broker().folder();
  gpumem_session_options session = GPUMEM_SESSION_OPTIONS_INIT;
  session.runtime_folder = folder.c_str();
  session.timeout_ms = 20'000;
  gpumem_allocator_options allocator = GPUMEM_ALLOCATOR_OPTIONS_INIT;
  allocator.limit = limit;
  return gpumem_configure_default(&session, &allocator);
}

/// A process that has configured its own, and whose environment leads nowhere.
class CForkedDefault : public testing::Test {
 protected:
  CForkedDefault() {
    (void)broker();
    ::setenv("GPUMEM_RUNTIME_DIR", "/nonexistent", 1);
    gpumem_session* session = nullptr;
    const bool is_first = gpumem_default_session(&session) != GPUMEM_OK;
    EXPECT_TRUE(!is_first || ok(configure(kLimit)));
  }
};

// Other threads configure meanwhile, and hold the lock of that at some time.
TEST_F(CForkedDefault, IsConfiguredAsTheParentsWhileItsThreadsGoOn) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own allocator may be locked in a child forked from several threads";
#endif
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&over] {
      while (!over) (void)configure(kLimit);
    });
  }
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(in_child([] { return borrows_within(kLimit); }));
  over = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CForkedDefault, OfAParentThatIsConnectedBorrowsWithinTheParentsLimit) {
  gpumem_session* session = nullptr;
  ASSERT_TRUE(ok(gpumem_default_session(&session)));
  EXPECT_TRUE(in_child([] { return borrows_within(kLimit); }));
  EXPECT_TRUE(in_child([] { return in_child([] { return borrows_within(kLimit); }); })) << "a child's child";
  EXPECT_TRUE(ok(gpumem_session_ping(session))) << "the parent's is its own";
}

TEST_F(CForkedDefault, FreesNothingOfItsParentsAndConnectsForThatToNobody) {
  gpumem_session* session = nullptr;
  ASSERT_TRUE(ok(gpumem_default_session(&session)));
  EXPECT_TRUE(in_child([] {
    testing::internal::CaptureStderr();
    gpumem_torch_free(reinterpret_cast<void*>(0x7f0000000000), 4096, 0, nullptr);
    return testing::internal::GetCapturedStderr().empty() && configure(2 * kLimit) == GPUMEM_OK;
  })) << "configured later than it has connected, it would be refused";
}

TEST_F(CForkedDefault, CanBeConfiguredAnewBeforeItsFirstUse) {
  gpumem_session* session = nullptr;
  ASSERT_TRUE(ok(gpumem_default_session(&session)));
  EXPECT_TRUE(in_child([] { return configure(2 * kLimit) == GPUMEM_OK && borrows_within(2 * kLimit); }));
  EXPECT_TRUE(in_child([] { return borrows_within(kLimit); }));
}

}  // namespace
}  // namespace gpumem::test
