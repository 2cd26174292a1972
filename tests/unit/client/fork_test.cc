// Children that open sessions of their own.
#include <atomic>
#include <thread>

#include "cuda/driver.h"
#include "sim/control/faults.h"
#include "tests/support/eventually.h"
#include "tests/support/in_child.h"
#include "tests/unit/client/slice_fixture.h"

namespace gpumem::client::test {
namespace {

using gpumem::test::in_child;

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
  EXPECT_TRUE(in_child([&] {
    auto own = Session::connect({childs.folder(), "child"});
    return own && own->ping() && session->ping().error().code == Code::kFailedPrecondition;
  }));
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
    EXPECT_TRUE(in_child([&] {
      auto own = Session::connect({childs.folder(), "child", std::chrono::seconds(20)});
      return own && own->ping() && session->ping().error().code == Code::kFailedPrecondition;
    }));
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
  EXPECT_TRUE(in_child([&] {
    const auto refused = cuda::Driver::open(simulated_machine());
    return !refused && refused.error().code == Code::kFailedPrecondition &&
           cuda::Driver::current().error().code == Code::kFailedPrecondition;
  }));
  opening.join();
  EXPECT_TRUE(sim::clear_faults(machine));
  EXPECT_TRUE(in_child([] { return cuda::Driver::current().has_value(); }))
      << "a driver that was open is the child's, too";
}

// A parent that waits for its answer still gets it, and not its child.
TEST(Fork, LeavesTheParentsAnswersToTheParent) {
  FakeBroker broker;
  auto session = Session::connect({broker.folder(), "parent", std::chrono::seconds(20)});
  ASSERT_TRUE(session);
  broker.stop_answering();
  std::thread waiting([&] { EXPECT_TRUE(session->ping()); });
  FakeLane childs(serve_pings);
  EXPECT_TRUE(in_child([&] {
    auto own = Session::connect({childs.folder(), "child", std::chrono::seconds(20)});
    return own && own->ping();
  }));
  broker.start_answering();
  waiting.join();
}

}  // namespace
}  // namespace gpumem::client::test
