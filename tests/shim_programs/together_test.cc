// Programs that do not know of each other on one device.
#include <deque>

#include "tests/shim_programs/stage.h"

namespace gpumem::shim_programs {
namespace {

using gpumem::test::eventually;
using gpumem::test::SteppedProgram;

using Together = ShimPrograms;

TEST_F(Together, TwoThatTakeTheVisibleMemoryHaveASliceEach) {
  const Environment half{{"GPUMEM_LIMIT", "11GiB"}};
  auto one = program({"tensorflow_holds"}, half), other = program({"tensorflow_holds"}, half, Way::kPreload);
  one.await();
  other.await();
  EXPECT_GT(charged(), 18 * kGiB) << "both have what they wanted";
  for (auto* each : {&one, &other}) {
    each->tell();
    EXPECT_TRUE(each->succeeds()) << each->output();
    EXPECT_EQ(each->output(), "");
  }
  EXPECT_TRUE(comes_to_rest());
}

TEST_F(Together, OneThatWouldHaveCrashedWaitsAndFinishesWhenTheOtherEnds) {
  auto one = program({"tensorflow_holds"});
  one.await();
  auto other = program({"tensorflow"}, {{"GPUMEM_WAIT", "10m"}});
  EXPECT_TRUE(eventually([&] { return broker_.device().waiting() == 1; }));
  one.tell_and_expect_success();
  EXPECT_TRUE(other.succeeds()) << other.output();
  EXPECT_EQ(other.output(), "");
  EXPECT_TRUE(comes_to_rest());
}

TEST_F(Together, OneThatWouldHaveCrashedWaitsAndFinishesWhenTheOtherIsKilled) {
  auto one = program({"tensorflow_holds"});
  one.await();
  auto other = program({"pytorch_holds"}, {{"GPUMEM_WAIT", "10m"}});
  EXPECT_TRUE(eventually([&] { return broker_.device().waiting() == 1; }));
  one.child().kill();
  other.await();
  other.tell_and_expect_success();
  EXPECT_TRUE(comes_to_rest());
}

/// Contexts are of the device's other memory: 256 MiB each.
class Crowd : public ShimPrograms {
 protected:
  // Room for the contexts of fifty, which are charged too, however long each of them takes.
  Crowd() : ShimPrograms(of_machine("1x48GiB", "all-but 16GiB")) {}
};

class Programs {
 public:
  void add(const gpumem::test::ChildOptions& options) { all_.emplace_back(options); }
  /// All of them are in the middle of it; every third is killed.
  void kill_some() {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      all_[i].await();
      if (i % 3 == 0) all_[i].child().kill();
    }
  }
  void expect_that_the_others_succeed() {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (i % 3 == 0) continue;
      EXPECT_TRUE(all_[i].succeeds()) << all_[i].output();
    }
  }

 private:
  std::deque<SteppedProgram> all_;
};

TEST_F(Crowd, ManyThatAllocateForkAndAreKilledLeaveNothingBehind) {
#ifdef __SANITIZE_ADDRESS__
  constexpr unsigned count = 16;  // which are slow: fifty at once would only wait for the processors
#else
  constexpr unsigned count = 50;
#endif
  Programs programs;
  for (unsigned i = 0; i < count; ++i) {
    const Words words{"crowd", std::to_string(i + 1), "80"};
    programs.add(options_of(words, {}, i % 2 == 0 ? Way::kPath : Way::kPreload));
  }
  programs.kill_some();
  programs.expect_that_the_others_succeed();
  EXPECT_TRUE(comes_to_rest());
  EXPECT_EQ(broker_.used_of_driver(), broker_.device().pool());
}

TEST_F(Crowd, GoesOnWhenItsBrokerAndSomeOfItAreKilled) {
  Programs programs;
  for (unsigned i = 0; i < 20; ++i)
    programs.add(options_of({"crowd", std::to_string(i + 1), "120"}, {}, Way::kPath));
  programs.kill_some();
  broker_.kill();
  broker_.start_again();
  programs.expect_that_the_others_succeed();
  EXPECT_TRUE(comes_to_rest());
  EXPECT_EQ(broker_.used_of_driver(), broker_.device().pool());
}

TEST_F(Crowd, ChildrenAreForkedWhileOtherThreadsAllocate) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own allocator may be locked in a child forked from several threads";
#endif
  const std::string said = expect({"threads_and_children", "200"});
  EXPECT_EQ(said, "");
  EXPECT_TRUE(comes_to_rest());
}

}  // namespace
}  // namespace gpumem::shim_programs
