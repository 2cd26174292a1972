#include "client/session/figures.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace gpumem::client::test {
namespace {

class FiguresTest : public testing::Test {
 protected:
  FiguresTest() { initialize(page_); }
  ClientFigures shown(std::size_t device = 0) const { return page_.devices[device]; }

  ClientPage page_;
  Figures figures_{page_};
};

TEST_F(FiguresTest, AreSummedOverTheSlicesOfADevice) {
  SliceFigures first(figures_, 0, 100);
  SliceFigures second(figures_, 0, 50);
  const SliceFigures elsewhere(figures_, 1, 7);
  first.set_committed(40);
  second.set_committed(20);
  first.set_in_use(30);
  second.set_in_use(10);
  EXPECT_EQ(shown().reserved, 150U);
  EXPECT_EQ(shown().committed, 60U);
  EXPECT_EQ(shown().in_use, 40U);
  EXPECT_EQ(shown(1).reserved, 7U);
}

TEST_F(FiguresTest, OfASliceThatGoesAreTakenOut) {
  {
    SliceFigures slice(figures_, 0, 100);
    slice.set_committed(40);
    slice.set_in_use(30);
  }
  EXPECT_EQ(shown().reserved, 0U);
  EXPECT_EQ(shown().committed, 0U);
  EXPECT_EQ(shown().in_use, 0U);
  EXPECT_EQ(shown().peak, 30U);
}

TEST_F(FiguresTest, NeverShowMoreInUseThanCommitted) {
  SliceFigures slice(figures_, 0, 100);
  slice.set_in_use(80);
  EXPECT_EQ(shown().in_use, 0U);
  slice.set_committed(50);
  EXPECT_EQ(shown().in_use, 50U);
  slice.set_committed(90);
  EXPECT_EQ(shown().in_use, 80U);
  slice.set_committed(10);
  EXPECT_EQ(shown().in_use, 10U);
  EXPECT_EQ(shown().peak, 80U);
}

TEST_F(FiguresTest, AreRightOnceTheThreadsThatChangeThemAreDone) {
  constexpr std::uint64_t kReserved = 1000;
  {
    SliceFigures slice(figures_, 0, kReserved);
    slice.set_committed(kReserved);
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&slice, t] {
        for (std::uint64_t i = 0; i < 20'000; ++i) slice.set_in_use((i * 7 + t) % kReserved);
      });
    }
    for (std::thread& thread : threads) thread.join();
    slice.set_in_use(123);
    EXPECT_EQ(shown().in_use, 123U);
    EXPECT_LE(shown().peak, kReserved);
    EXPECT_TRUE(read_figures(page_, 0, kReserved));
  }
  EXPECT_EQ(shown().in_use, 0U);
}

}  // namespace
}  // namespace gpumem::client::test
