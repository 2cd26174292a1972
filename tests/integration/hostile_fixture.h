#pragma once
#include "tests/integration/fixture.h"
#include "tests/support/lanes/frame_lane.h"

namespace gpumem::test {

/// Checks after each test that the broker serves others as before, and keeps nothing of the attack.
class HostileTest : public BrokerTest {
 protected:
  using BrokerTest::BrokerTest;
  void SetUp() override {
    client_with(mebibytes(4))->kill();
    EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
    settled_ = broker_.open_descriptors().size();
  }
  void TearDown() override {
    ASSERT_TRUE(broker_.running());
    auto normal = client_with(mebibytes(64));
    EXPECT_TRUE(succeeded(normal->shrink("a", {})));
    EXPECT_EQ(normal->leave(), 0);
    expect_rest();
    EXPECT_TRUE(eventually([&] { return broker_.open_descriptors().size() <= settled_; }))
        << testing::PrintToString(broker_.open_descriptors()) << ", " << settled_ << " before";
  }
  RawLane lane() { return RawLane(broker_.folder()); }
  /// One that has greeted.
  FrameLane session() {
    FrameLane one(broker_.folder());
    one.greet();
    return one;
  }

 private:
  std::size_t settled_ = 0;
};

}  // namespace gpumem::test
