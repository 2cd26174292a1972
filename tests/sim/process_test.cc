// Processes of a test end, whatever fails in them.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "tests/sim/sim_fixture.h"

namespace gpumem::sim::test {
namespace {

/// What fails here is meant to, and is not reported.
void say_nothing() { ASSERT_NE(std::freopen("/dev/null", "w", stdout), nullptr); }
void fail_fatally() { FAIL(); }

TEST(Process, OneThatHasFailedWaitsForNobody) {
  Process process([](Peer& peer) {
    say_nothing();
    fail_fatally();
    peer.await();
    peer.signal();
  });
  process.peer().await();  // it has not stopped where it would have waited
  EXPECT_NE(process.join(), 0);
}

TEST(Process, OneThatIsJoinedAwaitsWhatWasSentAndNothingMore) {
  Process process([](Peer& peer) {
    peer.await();
    ASSERT_FALSE(testing::Test::HasFailure());
    say_nothing();
    peer.await();
    ::_exit(testing::Test::HasNonfatalFailure() ? 0 : 1);
  });
  process.peer().signal();
  EXPECT_EQ(process.join(), 0);
}

TEST(Process, OneThatIsLeftAloneIsKilled) {
  pid_t pid = -1;
  {
    Process process([](Peer& peer) { peer.await(); });
    pid = process.pid();
  }
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), -1) << "it is waited for already";
}

}  // namespace
}  // namespace gpumem::sim::test
