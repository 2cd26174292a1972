#include "daemon/rpc/snapshots.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "tests/support/no_executor.h"
#include "tests/unit/core/policies.h"

namespace gpumem::rpc {
namespace {

/// Does the work on the thread that posts it, or drops it once it has stopped.
class InlineExecutor final : public test::NoExecutor {
 public:
  void post(Work work) override {
    if (!stopped) work(broker_, {});
  }
  void after(std::function<void()> done) override { done(); }

  bool stopped = false;

 private:
  core::Broker broker_{core::small_policy()};
};

TEST(Snapshots, AreCopiedAndPresentedInTheOrderOfTheCalls) {
  InlineExecutor executor;
  std::vector<int> presented;
  {
    Snapshots snapshots(executor);
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(snapshots.take([&, i](core::Broker& broker, core::TimePoint) -> Snapshots::Present {
        return [&presented, i, devices = broker.devices().size()] {
          presented.push_back(devices == 1 ? i : -1);
        };
      }));
    }
  }
  ASSERT_EQ(presented.size(), 100u) << "what is pending is done before it ends";
  for (int i = 0; i < 100; ++i) EXPECT_EQ(presented[static_cast<std::size_t>(i)], i);
}

TEST(Snapshots, RefuseMoreThanMayWait) {
  InlineExecutor executor;
  std::promise<void> begun, go_on;
  Snapshots snapshots(executor);
  ASSERT_TRUE(snapshots.take([&](core::Broker&, core::TimePoint) -> Snapshots::Present {
    return [&] {
      begun.set_value();
      go_on.get_future().wait();
    };
  }));
  begun.get_future().wait();
  const auto nothing = [](core::Broker&, core::TimePoint) -> Snapshots::Present { return [] {}; };
  for (std::size_t i = 0; i < Snapshots::kMostPending; ++i) EXPECT_TRUE(snapshots.take(nothing));
  EXPECT_FALSE(snapshots.take(nothing));
  go_on.set_value();
}

TEST(Snapshots, EndWithACoreThatHasStopped) {
  InlineExecutor executor;
  executor.stopped = true;
  Snapshots snapshots(executor);
  EXPECT_TRUE(snapshots.take([](core::Broker&, core::TimePoint) -> Snapshots::Present {
    ADD_FAILURE() << "nobody copies";
    return [] {};
  }));
}

}  // namespace
}  // namespace gpumem::rpc
