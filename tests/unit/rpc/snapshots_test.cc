#include "daemon/rpc/snapshots.h"

#include <gtest/gtest.h>

#include <cstdint>
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

constexpr std::uint64_t kUser = 1000;

TEST(Snapshots, AreCopiedAndPresentedInTheOrderOfTheCalls) {
  InlineExecutor executor;
  std::vector<int> presented;
  {
    Snapshots snapshots(executor);
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(snapshots.take(kUser, [&, i](core::Broker& broker, core::TimePoint) -> Snapshots::Present {
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
  ASSERT_TRUE(snapshots.take(kUser, [&](core::Broker&, core::TimePoint) -> Snapshots::Present {
    return [&] {
      begun.set_value();
      go_on.get_future().wait();
    };
  }));
  begun.get_future().wait();
  const auto nothing = [](core::Broker&, core::TimePoint) -> Snapshots::Present { return [] {}; };
  for (std::size_t i = 0; i < Snapshots::kMostPending; ++i) EXPECT_TRUE(snapshots.take(kUser, nothing));
  EXPECT_FALSE(snapshots.take(kUser, nothing));
  EXPECT_TRUE(snapshots.take(kUser + 1, nothing)) << "another user's share is not taken";
  go_on.set_value();
}

TEST(Snapshots, OfUsersTakeTurns) {
  InlineExecutor executor;
  std::promise<void> begun, go_on;
  std::vector<std::uint64_t> order;
  {
    Snapshots snapshots(executor);
    const auto add = [&](std::uint64_t user) {
      return snapshots.take(user, [&order, user](core::Broker&, core::TimePoint) -> Snapshots::Present {
        return [&order, user] { order.push_back(user); };
      });
    };
    ASSERT_TRUE(snapshots.take({}, [&](core::Broker&, core::TimePoint) -> Snapshots::Present {
      return [&] {
        begun.set_value();
        go_on.get_future().wait();
      };
    }));
    begun.get_future().wait();
    for (const std::uint64_t user : {1, 1, 1, 2, 3, 3}) ASSERT_TRUE(add(user));
    go_on.set_value();
  }
  EXPECT_EQ(order, (std::vector<std::uint64_t>{1, 2, 3, 1, 3, 1}));
}

TEST(Snapshots, EndWithACoreThatHasStopped) {
  InlineExecutor executor;
  executor.stopped = true;
  Snapshots snapshots(executor);
  EXPECT_TRUE(snapshots.take(kUser, [](core::Broker&, core::TimePoint) -> Snapshots::Present {
    ADD_FAILURE() << "nobody copies";
    return [] {};
  }));
}

}  // namespace
}  // namespace gpumem::rpc
