#include "client/process/signal_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <thread>

#include "tests/support/in_child.h"

namespace gpumem::client {
namespace {

volatile std::sig_atomic_t taken = 0;
volatile pid_t sender = 0;
void take(int number) { taken = number; }
void take_with_information(int number, siginfo_t* info, void*) {
  taken = number;
  sender = info->si_pid;
}

using Action = struct sigaction;

Action action_of(int number) {
  Action action{};
  EXPECT_EQ(::sigaction(number, nullptr, &action), 0);
  return action;
}
Action set(int number, void (*handler)(int), int flags = 0) {
  Action action{}, before{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigaddset(&action.sa_mask, SIGUSR2);
  EXPECT_EQ(::sigaction(number, &action, &before), 0);
  return before;
}

struct SignalWatchTest : testing::Test {
  SignalWatchTest() : before_(action_of(SIGTERM)) { taken = 0; }
  ~SignalWatchTest() override { ::sigaction(SIGTERM, &before_, nullptr); }
  const Action before_;
};

TEST_F(SignalWatchTest, NotesASignalThatTheHandlerOfTheProgramTakes) {
  set(SIGTERM, take);
  const SignalWatch watch;
  EXPECT_EQ(watch.seen(), 0);
  ::raise(SIGTERM);
  EXPECT_EQ(taken, SIGTERM);
  EXPECT_EQ(watch.seen(), SIGTERM);
  EXPECT_EQ(watch.error().code, Code::kCancelled);
  EXPECT_EQ(watch.error().message, "the wait was ended by a signal, SIGTERM");
  EXPECT_EQ(SignalWatch().seen(), SIGTERM) << "the call began before the signal";
}

TEST_F(SignalWatchTest, NotesASignalThatAnotherThreadTakes) {
  set(SIGTERM, take);
  const SignalWatch watch;
  std::thread([] { ::raise(SIGTERM); }).join();
  EXPECT_EQ(watch.seen(), SIGTERM);
  std::thread([] { EXPECT_EQ(SignalWatch().seen(), 0) << "this one began after it"; }).join();
}

TEST_F(SignalWatchTest, HandlerHasItsInformation) {
  Action action{};
  action.sa_sigaction = take_with_information;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGTERM, &action, nullptr);
  const SignalWatch watch;
  ::kill(::getpid(), SIGTERM);
  EXPECT_EQ(taken, SIGTERM);
  EXPECT_EQ(sender, ::getpid());
}

TEST_F(SignalWatchTest, RoutineSignalsAreNotNoted) {
  const Action before = set(SIGUSR1, take);
  const SignalWatch watch;
  ::raise(SIGUSR1);
  EXPECT_EQ(taken, SIGUSR1);
  EXPECT_EQ(watch.seen(), 0);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(SignalWatchTest, LeavesEverythingAsItWas) {
  set(SIGTERM, take, SA_RESTART | SA_NODEFER);
  const Action ignored = set(SIGHUP, SIG_IGN);
  {
    const SignalWatch watch;
    EXPECT_NE(action_of(SIGTERM).sa_handler, take);
    EXPECT_EQ(action_of(SIGHUP).sa_handler, SIG_IGN);
    EXPECT_EQ(action_of(SIGQUIT).sa_handler, SIG_DFL);
  }
  const Action after = action_of(SIGTERM);
  EXPECT_EQ(after.sa_handler, take);
  EXPECT_EQ(after.sa_flags & (SA_RESTART | SA_NODEFER | SA_SIGINFO), SA_RESTART | SA_NODEFER);
  EXPECT_TRUE(::sigismember(&after.sa_mask, SIGUSR2));
  ::sigaction(SIGHUP, &ignored, nullptr);
}

TEST_F(SignalWatchTest, LeavesWhatTheProgramSetsMeanwhile) {
  set(SIGTERM, take);
  std::optional<SignalWatch> watch(std::in_place);
  const Action in_front = set(SIGTERM, SIG_IGN);
  watch.reset();
  EXPECT_EQ(action_of(SIGTERM).sa_handler, SIG_IGN);
  ::sigaction(SIGTERM, &in_front, nullptr);  // as a program that sets what it has found before
  ::raise(SIGTERM);
  EXPECT_EQ(taken, SIGTERM) << "it calls the handler still";
  watch.emplace();
  watch.reset();
  EXPECT_EQ(action_of(SIGTERM).sa_handler, take);
}

Action chained{};
void call_the_one_before(int number, siginfo_t* info, void* context) {
  chained.sa_sigaction(number, info, context);
}
// As Python's faulthandler does it.
void raise_for_the_one_before(int number, siginfo_t*, void*) {
  Action own{};
  ::sigaction(number, &chained, &own);
  ::raise(number);
  ::sigaction(number, &own, nullptr);
}

// Other copies of the library put a function in front of this one's, too: they call what they have found.
TEST_F(SignalWatchTest, HandlerThatCallsTheOneBeforeReachesIt) {
  for (const auto handler : {call_the_one_before, raise_for_the_one_before}) {
    set(SIGTERM, take);
    std::optional<SignalWatch> watch(std::in_place);
    Action action{};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    ::sigaction(SIGTERM, &action, &chained);
    for (int wait = 0; wait < 100; ++wait) {
      watch.reset();
      watch.emplace();
      EXPECT_EQ(watch->seen(), 0);
      taken = 0;
      ::raise(SIGTERM);
      EXPECT_EQ(taken, SIGTERM);
      EXPECT_EQ(watch->seen(), SIGTERM);
    }
    watch.reset();
    EXPECT_EQ(action_of(SIGTERM).sa_sigaction, handler);
    ::sigaction(SIGTERM, &chained, nullptr);  // as a program that sets what it has found before
    { const SignalWatch next; }
    EXPECT_EQ(action_of(SIGTERM).sa_handler, take);
  }
}

TEST_F(SignalWatchTest, ChildThatIsForkedMeanwhileHasItsHandlers) {
  set(SIGTERM, take);
  std::optional<SignalWatch> watch(std::in_place);
  std::thread([] {
    EXPECT_TRUE(gpumem::test::in_child([] {
      ::raise(SIGTERM);
      const bool was_called = taken == SIGTERM;
      { const SignalWatch own; }
      return was_called && action_of(SIGTERM).sa_handler == take;
    }));
  }).join();
}

}  // namespace
}  // namespace gpumem::client
