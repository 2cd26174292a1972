// The broker ends under programs that know nothing of it.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "tests/shim_programs/stage.h"
#include "tests/support/temporary_folder.h"

namespace gpumem::shim_programs {
namespace {

using gpumem::test::eventually;
using gpumem::test::SteppedProgram;

enum class End { kKilled, kStopped, kUpgraded };

/// The next broker knows what the one before has lent.
class ProgramsAcrossRestarts : public ShimPrograms, public testing::WithParamInterface<End> {
 protected:
  void restart() {
    if (GetParam() == End::kUpgraded) {
      const gpumem::test::Outcome upgraded = broker_.upgrade();
      EXPECT_EQ(upgraded.status, 0) << upgraded.output;
      return;
    }
    if (GetParam() == End::kKilled)
      broker_.kill();
    else
      EXPECT_EQ(broker_.stop(), 0);
    broker_.start_again();
  }
};
std::string name_of_end(const testing::TestParamInfo<End>& end) {
  return end.param == End::kKilled ? "Killed" : end.param == End::kStopped ? "Stopped" : "Upgraded";
}
INSTANTIATE_TEST_SUITE_P(Brokers, ProgramsAcrossRestarts,
                         testing::Values(End::kKilled, End::kStopped, End::kUpgraded), name_of_end);

TEST_P(ProgramsAcrossRestarts, AllocateAndFreeAsIfNothingHadHappened) {
  auto one = program({"goes_on", "3"});
  for (int i = 0; i < 3; ++i) {
    one.await();
    restart();
    one.tell();
  }
  one.await();
  EXPECT_EQ(one.output(), "");
  EXPECT_EQ(broker_.sessions().size(), 1U);
  one.tell_and_expect_success();
  EXPECT_TRUE(comes_to_rest());
}

TEST_P(ProgramsAcrossRestarts, WaitForMemoryOfOthersOnTheOtherSide) {
  auto holder = program({"hold", std::to_string(20 * 1024)});
  holder.await();
  auto waiter = program({"hold", std::to_string(10 * 1024)}, {{"GPUMEM_WAIT", "10m"}});
  EXPECT_TRUE(eventually([&] { return broker_.device().waiting() == 1; }));
  restart();
  EXPECT_TRUE(eventually([&] { return broker_.device().waiting() == 1; }));
  holder.tell();
  waiter.await();
  waiter.tell();
  for (SteppedProgram* each : {&holder, &waiter}) {
    EXPECT_TRUE(each->succeeds()) << each->output();
    EXPECT_EQ(each->output(), "");
  }
  EXPECT_TRUE(comes_to_rest());
}

TEST_P(ProgramsAcrossRestarts, FindTheBrokerFromAnotherDirectory) {
  auto one = program({"changes_its_directory"}, relative_folder());
  one.await();
  restart();
  one.tell_and_expect_success();
  EXPECT_EQ(one.output(), "");
  EXPECT_TRUE(comes_to_rest());
}

/// There is no broker for longer than a call of the library takes to give up.
class ProgramsWithoutABroker : public ShimPrograms {
 protected:
  static constexpr std::chrono::milliseconds kLong{2500};

  /// Returns when none of its threads runs any more.
  void stop_broker() const {
    ::kill(broker_.pid(), SIGSTOP);
    EXPECT_TRUE(eventually([this] {
      const std::filesystem::directory_iterator threads("/proc/" + std::to_string(broker_.pid()) + "/task");
      return std::ranges::all_of(threads, [](const auto& thread) {
        const std::string stat = gpumem::test::read_file(thread.path() / "stat");
        return stat.substr(stat.rfind(')') + 1, 2) == " T";
      });
    }));
  }
  std::uint64_t outside() const { return broker_.tenant("uid:" + std::to_string(::getuid())).outside(); }
};

TEST_F(ProgramsWithoutABroker, WaitForTheNext) {
  auto one = program({"goes_on", "1"}, {{"GPUMEM_WAIT", "10m"}});
  one.await();
  broker_.kill();
  one.tell();
  std::this_thread::sleep_for(kLong);
  broker_.start_again();
  one.await();
  EXPECT_TRUE(one.output().starts_with("gpumem: waiting for ")) << one.output();
  one.tell_and_expect_success();
  EXPECT_TRUE(comes_to_rest());
}

TEST_F(ProgramsWithoutABroker, WaitForOneThatDoesNotAnswer) {
  auto one = program({"goes_on", "1"}, {{"GPUMEM_WAIT", "10m"}});
  one.await();
  stop_broker();
  one.tell();
  std::this_thread::sleep_for(kLong);
  ::kill(broker_.pid(), SIGCONT);
  one.await();
  EXPECT_TRUE(one.output().starts_with("gpumem: waiting for ")) << one.output();
  one.tell_and_expect_success();
}

TEST_F(ProgramsWithoutABroker, ReportTheirFreedMemoryLater) {
  auto one = program({"frees_meanwhile"});
  one.await();
  const std::uint64_t before = outside();
  EXPECT_GE(before, 64 * kMiB);
  stop_broker();
  one.tell_and_await();
  ::kill(broker_.pid(), SIGCONT);
  EXPECT_TRUE(eventually([&] { return outside() + 64 * kMiB <= before; })) << outside() << " of " << before;
  one.tell_and_expect_success();
  EXPECT_EQ(one.output(), "");
}

TEST_F(ProgramsWithoutABroker, AreNotChargedLaterForRefusedMemory) {
  auto one = program({"wants_meanwhile"}, {{"GPUMEM_WAIT", "1s"}});
  one.await();
  const std::uint64_t before = outside();
  stop_broker();
  one.tell_and_await();
  ::kill(broker_.pid(), SIGCONT);
  // The request is charged for a moment, when the broker reads it.
  for (int look = 0; look < 100 && !HasFailure(); ++look)
    EXPECT_TRUE(eventually([&] { return outside() == before; })) << outside() << " instead of " << before;
  one.tell_and_expect_success();
}

TEST_F(ProgramsWithoutABroker, AreRefusedWhenTheyHaveWaitedInVain) {
  auto one = program({"goes_on", "1"}, {{"GPUMEM_WAIT", "0s"}});
  one.await();
  broker_.kill();
  one.tell();
  EXPECT_FALSE(one.succeeds());
  EXPECT_THAT(one.output(), testing::HasSubstr("is refused"));
  broker_.start_again();
}

// The first attempt looks for a broker for a second, and is part of the wait. The rest is too short to be
// told of.
TEST_F(ProgramsWithoutABroker, WaitNoLongerThanTheyMay) {
  auto one = program({"goes_on", "1"}, {{"GPUMEM_WAIT", "1500ms"}});
  one.await();
  broker_.kill();
  one.tell();
  EXPECT_FALSE(one.succeeds());
  EXPECT_THAT(one.output(), testing::HasSubstr("is refused"));
  EXPECT_THAT(one.output(), testing::Not(testing::HasSubstr("waiting for")));
  broker_.start_again();
}

/// Both go on step by step; `between` comes when the second has opened what the first has passed on.
template <class Between>
void pass_on(SteppedProgram& from, SteppedProgram& to, const Between& between) {
  from.await();
  to.tell_and_await();
  between();
  from.tell_and_await();
  to.tell_and_await();
  to.tell_and_expect_success();
  from.tell_and_expect_success();
}

TEST_P(ProgramsAcrossRestarts, KeepImportedMemoryAndImportMore) {
  const gpumem::test::TemporaryFolder folder;
  const std::string file = folder / "handle";
  auto from = program({"passes_on", file}), to = program({"opens", file});
  pass_on(from, to, [&] { restart(); });
  EXPECT_EQ(from.output() + to.output(), "");
  EXPECT_TRUE(comes_to_rest());
}

/// The next broker knows nothing of them: their memory is that of strangers to it.
class ProgramsOfALostSession : public ShimPrograms {
 protected:
  using ShimPrograms::ShimPrograms;
  void restart() {
    broker_.kill();
    gpumem::test::write_file(broker_.folder() + "/private/journal", "no journal");
    broker_.start_again();
  }
  static void expect_that_it_was_said_once(const std::string& said) {
    const auto first = said.find("the session with the broker was lost");
    EXPECT_NE(first, std::string::npos) << said;
    EXPECT_EQ(said.find("the session with the broker was lost", first + 1), std::string::npos) << said;
  }
};

TEST_F(ProgramsOfALostSession, KeepTheirMemoryAndBorrowMoreInAnother) {
  auto one = program({"goes_on", "1"});
  one.await();
  restart();
  one.tell_and_await();
  expect_that_it_was_said_once(one.output());
  EXPECT_EQ(broker_.sessions().size(), 1U);
  one.tell_and_expect_success();
  EXPECT_TRUE(comes_to_rest());
}

TEST_F(ProgramsOfALostSession, LoseItAgainAndAgain) {
  auto one = program({"goes_on", "4"});
  for (int i = 0; i < 4; ++i) {
    one.await();
    restart();
    one.tell();
  }
  one.await();
  one.tell_and_expect_success();
  EXPECT_TRUE(comes_to_rest());
}

TEST_F(ProgramsOfALostSession, StayWithinTheirLimit) {
  auto one = program({"keeps_its_limit"}, {{"GPUMEM_LIMIT", "64MiB"}});
  one.await();
  restart();
  one.tell_and_await();
  EXPECT_EQ(charged(), 64 * kMiB) << "nothing is left of the session before";
  one.tell_and_expect_success();
  EXPECT_TRUE(comes_to_rest());
}

TEST_F(ProgramsOfALostSession, WithAllocatingThreadsLoseItAgainAndAgain) {
  const gpumem::test::TemporaryFolder folder;
  const std::string end = folder / "end";
  auto one = program({"threads", end});
  for (int i = 0; i < 6; ++i) {
    one.await();
    if (i == 5) gpumem::test::write_file(end, "");
    if (i % 2 == 1) restart();
    one.tell();
  }
  EXPECT_TRUE(one.succeeds()) << one.output();
  EXPECT_TRUE(comes_to_rest());
}

TEST_F(ProgramsOfALostSession, DeclareTheDriversMemoryToTheNextBroker) {
  // Of the tenant; with the process's context, which is much smaller.
  const auto declares = [this](bool wanted) {
    return eventually([&] { return (broker_.tenant("uid:0").outside() >= 600 * kMiB) == wanted; });
  };
  auto one = program({"declares_again"});
  one.await();
  EXPECT_TRUE(declares(true));
  restart();
  one.tell_and_await();
  EXPECT_TRUE(declares(true));
  one.tell_and_await();
  EXPECT_TRUE(declares(false));
  one.tell_and_expect_success();
  EXPECT_TRUE(comes_to_rest());
}

TEST_F(ProgramsOfALostSession, AreRefusedWhileNoBrokerIsThereAndNotForEver) {
  auto one = program({"is_refused_meanwhile"}, {{"GPUMEM_WAIT", "0s"}});
  one.await();
  broker_.kill();
  one.tell_and_await();
  gpumem::test::write_file(broker_.folder() + "/private/journal", "no journal");
  broker_.start_again();
  one.tell_and_expect_success();
  EXPECT_TRUE(comes_to_rest());
}

TEST_F(ProgramsOfALostSession, WithoutMemoryBorrowInAnotherFromTheBeginning) {
  auto one = program({"allocates_late"});
  one.await();
  restart();
  one.tell_and_expect_success();
  expect_that_it_was_said_once(one.output());
  EXPECT_TRUE(comes_to_rest());
}

TEST_F(ProgramsOfALostSession, FindTheBrokerFromAnotherDirectory) {
  auto one = program({"changes_its_directory"}, relative_folder());
  one.await();
  restart();
  one.tell_and_expect_success();
  EXPECT_TRUE(comes_to_rest());
}

TEST_F(ProgramsOfALostSession, PassMemoryOnInAnother) {
  const gpumem::test::TemporaryFolder folder;
  const std::string file = folder / "handle";
  auto from = program({"passes_on", file}), to = program({"opens", file});
  pass_on(from, to, [&] { restart(); });
  EXPECT_TRUE(comes_to_rest());
}

}  // namespace
}  // namespace gpumem::shim_programs
