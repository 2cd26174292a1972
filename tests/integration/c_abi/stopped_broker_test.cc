// The process's own session and allocators beside a broker that is stopped: it is there, and does not answer.
#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "tests/integration/c_abi/broker.h"

namespace gpumem::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeout{1};    // of calls, by default
constexpr std::uint64_t kUnusual = 32U << 20;  // more than any allocator has left

class CStoppedBroker : public testing::Test {
 protected:
  CStoppedBroker() { (void)broker(); }
  ~CStoppedBroker() override { go_on(); }
  static void stop() {
    EXPECT_EQ(::kill(broker().pid(), SIGSTOP), 0);
    siginfo_t info{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(broker().pid()), &info, WSTOPPED), 0);
  }
  static void go_on() { (void)::kill(broker().pid(), SIGCONT); }
};

gpumem_status borrow(gpumem_allocator* allocator) {
  gpumem_address address = 0;
  const gpumem_status status = gpumem_allocate(allocator, kUnusual, nullptr, &address);
  if (status == GPUMEM_OK) (void)gpumem_deallocate(allocator, address, kUnusual, nullptr);
  return status;
}

TEST_F(CStoppedBroker, CostsAllThreadsOneTimeoutAndTheNextCallsNothing) {
  constexpr int kThreads = 16;
  gpumem_allocator* allocator = nullptr;
  ASSERT_TRUE(ok(gpumem_default_allocator(0, &allocator)));
  ASSERT_TRUE(ok(gpumem_allocator_trim(allocator, GPUMEM_UNKNOWN_SIZE, nullptr)));
  stop();
  const auto before = Clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back(
        [&] { EXPECT_TRUE(fails(GPUMEM_UNAVAILABLE, borrow(allocator), "does not answer")); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(Clock::now() - before, kThreads * kTimeout / 2) << "one after another they would take longer";
  const auto later = Clock::now();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(fails(GPUMEM_UNAVAILABLE, borrow(allocator), "does not answer"));
  EXPECT_LT(Clock::now() - later, kPatience) << "100 timeouts would take longer";
  go_on();
  EXPECT_TRUE(eventually([&] { return borrow(allocator) == GPUMEM_OK; })) << gpumem_last_error();
}

// The process is a child that has nothing of its parent's.
TEST_F(CStoppedBroker, CostsAProcessOneTimeoutThatHasNotConnectedYet) {
  stop();
  EXPECT_TRUE(in_child([] {
    gpumem_session* session = nullptr;
    const auto before = Clock::now();
    for (int i = 0; i < 100; ++i) {
      if (!fails(GPUMEM_UNAVAILABLE, gpumem_default_session(&session), "does not answer")) return false;
    }
    if (Clock::now() - before > kPatience) return false;  // 100 timeouts would take longer
    go_on();
    return eventually([&] { return gpumem_default_session(&session) == GPUMEM_OK; }) &&
           gpumem_session_ping(session) == GPUMEM_OK;
  }));
}

TEST_F(CStoppedBroker, CostsOneTimeoutHoweverManySessionsAProcessConnects) {
  stop();
  EXPECT_TRUE(in_child([] {
    gpumem_session* session = nullptr;
    const auto before = Clock::now();
    for (int i = 0; i < 100; ++i) {
      if (!fails(GPUMEM_UNAVAILABLE, gpumem_session_connect(nullptr, &session), "does not answer"))
        return false;
    }
    if (!fails(GPUMEM_UNAVAILABLE, gpumem_default_session(&session), "does not answer")) return false;
    if (Clock::now() - before > kPatience) return false;  // 100 timeouts would take longer
    go_on();
    return eventually([&] { return gpumem_session_connect(nullptr, &session) == GPUMEM_OK; }) &&
           gpumem_session_ping(session) == GPUMEM_OK && broker().sessions().size() <= 2;  // and the parent's
  }));
}

}  // namespace
}  // namespace gpumem::test
