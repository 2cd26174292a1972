// Handlers that are removed, replaced, or run while their session ends; forks.
#include <pthread.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>

#include "tests/support/eventually.h"
#include "tests/support/in_child.h"
#include "tests/unit/client/slice_fixture.h"

namespace gpumem::client::test {
namespace {

using gpumem::test::eventually;
using std::chrono::seconds;

/// A handler that says when it runs, and runs until it is let go.
struct SlowHandler {
  PressureHandler handler() {
    return [this](const Pressure&) {
      running.set_value();
      go.get_future().wait();
      returned = true;
      return Bytes{};
    };
  }
  void await_call() { running.get_future().wait(); }

  std::promise<void> running;
  std::promise<void> go;
  std::atomic<bool> returned = false;
};

using PressureEnd = SliceTest;

/// The folder in /proc of the library's thread in this process; empty if there is none.
std::filesystem::path listener() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    if (name == "gpumem") return task.path();
  }
  return {};
}

bool is_listening() { return !listener().empty(); }

/// How often the thread has waited for something.
int waits_of_listener() {
  std::ifstream status(listener() / "status");
  for (std::string word; status >> word;) {
    int waits = 0;
    if (word == "voluntary_ctxt_switches:" && status >> waits) return waits;
  }
  return 0;
}

TEST_F(PressureEnd, HandlerThatIsRemovedHasReturned) {
  SlowHandler slow;
  ASSERT_TRUE(session_->on_pressure(slow.handler()));
  broker_.ask_back(mebibytes(2), seconds(1));
  slow.await_call();
  auto removed = std::async(std::launch::async, [&] {
    EXPECT_TRUE(session_->on_pressure({}));
    return slow.returned.load();
  });
  slow.go.set_value();
  EXPECT_TRUE(removed.get());
}

TEST_F(PressureEnd, HandlerThatIsReplacedIsGoneWithWhatItHolds) {
  auto held = std::make_shared<int>(7);
  ASSERT_TRUE(session_->on_pressure([held](const Pressure&) { return Bytes{}; }));
  EXPECT_EQ(held.use_count(), 2);
  broker_.ask_back(mebibytes(2), seconds(1));
  broker_.await_spent(1);
  std::promise<void> called;
  ASSERT_TRUE(session_->on_pressure([&](const Pressure&) {
    called.set_value();
    return Bytes{};
  }));
  EXPECT_EQ(held.use_count(), 1);
  broker_.ask_back(mebibytes(2), seconds(2));
  called.get_future().wait();
  ASSERT_TRUE(session_->on_pressure({}));
}

TEST_F(PressureEnd, HandlerMayRemoveItself) {
  std::promise<void> removed;
  ASSERT_TRUE(session_->on_pressure([&](const Pressure&) {
    EXPECT_TRUE(session_->on_pressure({}));
    removed.set_value();
    return Bytes{};
  }));
  broker_.ask_back(mebibytes(2), seconds(1));
  removed.get_future().wait();
  broker_.await_spent(1);
  broker_.ask_back(mebibytes(2), seconds(2));
  broker_.await_spent(2);  // and is not called again: the promise would throw, and that be said
}

TEST_F(PressureEnd, SessionThatGoesWaitsForItsHandler) {
  SlowHandler slow;
  ASSERT_TRUE(session_->on_pressure(slow.handler()));
  broker_.ask_back(mebibytes(2), seconds(1));
  slow.await_call();
  auto gone = std::async(std::launch::async, [&] {
    session_.reset();
    return slow.returned.load();
  });
  slow.go.set_value();
  EXPECT_TRUE(gone.get());
}

TEST_F(PressureEnd, HandlerMayEndItsSession) {
  std::promise<void> ended;
  ASSERT_TRUE(session_->on_pressure([&](const Pressure&) {
    session_.reset();
    ended.set_value();
    return Bytes{};
  }));
  broker_.ask_back(mebibytes(2), seconds(1));
  ended.get_future().wait();
  EXPECT_TRUE(eventually([] { return !is_listening(); })) << "the thread goes, too";
}

TEST_F(PressureEnd, HandlerMayEndTheLastOfItsSessionAndItsSlices) {
  auto slice = std::make_unique<Slice>(open({.trim_on_pressure = true}));
  ASSERT_TRUE(slice->grow(mebibytes(4)));
  slice->set_in_use(mebibytes(4));
  std::promise<void> ended;
  ASSERT_TRUE(session_->on_pressure([&](const Pressure&) {
    session_.reset();
    slice.reset();
    ended.set_value();
    return mebibytes(4);
  }));
  broker_.ask_back(mebibytes(4), seconds(1));
  ended.get_future().wait();
  EXPECT_EQ(broker_.leases_out(), 0U);
}

TEST_F(PressureEnd, SessionGoesWhileItIsAsked) {
  for (int round = 0; round < 20; ++round) {
    FakeBroker broker;
    auto session = Session::connect({broker.folder(), "test"});
    ASSERT_TRUE(session);
    auto slice = session->open_slice({.trim_on_pressure = true});
    ASSERT_TRUE(slice);
    ASSERT_TRUE(slice->grow(mebibytes(4)));
    broker.ask_back(mebibytes(4), seconds(1));
    if (round % 2 == 0) *slice = std::move(*session->open_slice());
  }
}

TEST_F(PressureEnd, SliceIsTrimmedAfterItsSessionObjectIsGone) {
  Slice slice = open({.trim_on_pressure = true});
  ASSERT_TRUE(slice.grow(mebibytes(4)));
  session_.reset();
  broker_.ask_back(mebibytes(4), seconds(1));
  EXPECT_TRUE(eventually([&] { return slice.committed().is_zero(); }));
}

TEST_F(PressureEnd, ThreadIsThereOnlyBetweenTheFirstNeedAndTheEnd) {
  ASSERT_TRUE(session_->on_pressure({}));
  EXPECT_FALSE(is_listening()) << "connecting and removing need none";
  ASSERT_TRUE(session_->on_pressure([](const Pressure&) { return Bytes{}; }));
  EXPECT_TRUE(eventually(is_listening));
  session_.reset();
  EXPECT_FALSE(is_listening());
}

TEST_F(PressureEnd, ThreadDoesNotSpinOnABellThatIsGone) {
  const Slice slice = open();
  EXPECT_TRUE(eventually(is_listening));
  broker_.drop_bell();
  const int before = waits_of_listener();
  EXPECT_TRUE(eventually([&] { return waits_of_listener() >= before + 3; })) << "it waits for a broker";
}

TEST_F(PressureEnd, HandlerRunsWithEverySignalBlocked) {
  std::promise<bool> blocked;
  ASSERT_TRUE(session_->on_pressure([&](const Pressure&) {
    sigset_t mask;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked.set_value(::sigismember(&mask, SIGTERM) == 1 && ::sigismember(&mask, SIGINT) == 1);
    return Bytes{};
  }));
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(::sigismember(&mask, SIGTERM), 0) << "the caller's own mask is as before";
  broker_.ask_back(mebibytes(2), seconds(1));
  EXPECT_TRUE(blocked.get_future().get());
  ASSERT_TRUE(session_->on_pressure({}));
}

TEST_F(PressureEnd, ForkedChildHasNeitherThreadNorHandlerAndDoesNotHang) {
  SlowHandler slow;
  Slice slice = open({.trim_on_pressure = true});
  ASSERT_TRUE(session_->on_pressure(slow.handler()));
  broker_.ask_back(mebibytes(2), seconds(1));
  slow.await_call();  // the fork comes while the handler runs
  EXPECT_TRUE(gpumem::test::in_child([&] {
    const bool refused = session_->on_pressure({}).error().code == Code::kFailedPrecondition &&
                         session_->charge("GPU-x", {}).error().code == Code::kFailedPrecondition &&
                         session_->grow_all({}).error().code == Code::kFailedPrecondition &&
                         !slice.set_in_use({});
    { const Slice gone = std::move(slice); }
    session_.reset();
    return refused && !is_listening();
  }));
  slow.go.set_value();
  broker_.await_spent(1);
  ASSERT_TRUE(session_->on_pressure({}));
}

TEST_F(PressureEnd, SessionThatHasBeenMovedFromTakesNoHandler) {
  const Session moved = std::move(*session_);
  EXPECT_EQ(session_->on_pressure({}).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(session_->charge("GPU-x", {}).error().code, Code::kFailedPrecondition);
}

}  // namespace
}  // namespace gpumem::client::test
