// Children that open sessions of their own.
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "cuda/driver.h"
#include "sim/control/faults.h"
#include "tests/support/eventually.h"
#include "tests/unit/client/slice_fixture.h"

namespace gpumem::client::test {
namespace {

bool ended_well(pid_t child) {
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

/// A broker that answers pings until its client leaves.
void serve_pings(int socket) {
  greet(socket);
  for (Said said = receive_frame(socket); said.is<lane::Ping>(); said = receive_frame(socket))
    send_frame(socket, lane::Done{}, said.header.request);
}

TEST(Fork, ChildOfAProcessThatHasCalledTheBrokerOpensASessionOfItsOwn) {
  FakeLane parents(serve_pings);
  FakeLane childs(serve_pings);
  auto session = Session::connect({parents.folder(), "parent"});
  ASSERT_TRUE(session);
  ASSERT_TRUE(session->ping());
  const pid_t child = ::fork();
  if (child == 0) {
    auto own = Session::connect({childs.folder(), "child"});
    const bool good = own && own->ping() && session->ping().error().code == Code::kFailedPrecondition;
    ::_exit(good ? 0 : 1);
  }
  EXPECT_TRUE(ended_well(child));
  EXPECT_TRUE(session->ping());
}

// The threads hold every lock of a call at some time; none may be held for ever in a child.
TEST(Fork, MayComeWhileOtherThreadsAreInACall) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own allocator may be locked in a child forked from several threads";
#endif
  FakeLane parents(serve_pings);
  auto session = Session::connect({parents.folder(), "parent", std::chrono::seconds(20)});
  ASSERT_TRUE(session);
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!over) EXPECT_TRUE(session->ping());
    });
  }
  for (int i = 0; i < 20; ++i) {
    FakeLane childs(serve_pings);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);  // ends a child that hangs
      auto own = Session::connect({childs.folder(), "child", std::chrono::seconds(20)});
      const bool good = own && own->ping() && session->ping().error().code == Code::kFailedPrecondition;
      ::_exit(good ? 0 : 1);
    }
    EXPECT_TRUE(ended_well(child));
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
}

// The thread holds the driver's own locks, and those of the dynamic loader, at some time.
TEST(Fork, ChildOfAProcessThatStartsTheDriverIsRefusedItAndNotHeldUp) {
  if (cuda::Driver::current()) GTEST_SKIP() << "an earlier test of this process has started the driver";
  const auto machine = sim::load_machine(simulated_machine()).value();
  ASSERT_TRUE(sim::add_fault(machine, "cuInit delay 1s"));
  std::thread opening([] { EXPECT_TRUE(cuda::Driver::open(simulated_machine())); });
  ASSERT_TRUE(gpumem::test::eventually([&] { return sim::faults(machine)->at(0).matches == 1; }));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // ends a child that hangs
    const auto refused = cuda::Driver::open(simulated_machine());
    const bool good = !refused && refused.error().code == Code::kFailedPrecondition &&
                      cuda::Driver::current().error().code == Code::kFailedPrecondition;
    ::_exit(good ? 0 : 1);
  }
  EXPECT_TRUE(ended_well(child));
  opening.join();
  EXPECT_TRUE(sim::clear_faults(machine));
  const pid_t later = ::fork();
  if (later == 0) ::_exit(cuda::Driver::current() ? 0 : 1);
  EXPECT_TRUE(ended_well(later)) << "a driver that was open is the child's, too";
}

// A parent that waits for its answer still gets it, and not its child.
TEST(Fork, LeavesTheParentsAnswersToTheParent) {
  FakeBroker broker;
  auto session = Session::connect({broker.folder(), "parent", std::chrono::seconds(20)});
  ASSERT_TRUE(session);
  broker.stop_answering();
  std::thread waiting([&] { EXPECT_TRUE(session->ping()); });
  FakeLane childs(serve_pings);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    auto own = Session::connect({childs.folder(), "child", std::chrono::seconds(20)});
    ::_exit(own && own->ping() ? 0 : 1);
  }
  EXPECT_TRUE(ended_well(child));
  broker.start_answering();
  waiting.join();
}

}  // namespace
}  // namespace gpumem::client::test
