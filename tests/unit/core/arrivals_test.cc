#include "daemon/core/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace gpumem::core {
namespace {

// A device, and slots that are named by their request.
class ArrivalsTest : public testing::Test {
 protected:
  void add(std::uint32_t request) {
    if (arrivals.full()) renumber();
    place_of.resize(std::max<std::size_t>(place_of.size(), request + 1), Arrivals::kNone);
    place_of[request] = arrivals.add(RequestId{request}, request);
    arrivals.count(place_of[request], 0);
  }
  void keep(std::uint32_t request) {
    if (arrivals.full()) renumber();
    arrivals.keep(RequestId{request});
  }
  bool fill(std::uint32_t request) {
    const auto place = arrivals.fill(RequestId{request}, request);
    if (!place) return false;
    place_of.resize(std::max<std::size_t>(place_of.size(), request + 1), Arrivals::kNone);
    place_of[request] = *place;
    arrivals.count(*place, 0);
    return true;
  }
  void remove(std::uint32_t request) {
    arrivals.uncount(place_of[request], 0);
    arrivals.remove(place_of[request]);
  }
  void renumber() {
    arrivals.renumber([this](std::uint32_t request, std::uint32_t place) {
      place_of[request] = place;
      most_places = std::max(most_places, place + 1);
      arrivals.count(place, 0);
    });
  }

  Arrivals arrivals{1};
  std::vector<std::uint32_t> place_of;
  std::uint32_t most_places = 0;
};

TEST_F(ArrivalsTest, CountsThoseThatWaitAndCameBefore) {
  for (std::uint32_t request = 1; request <= 300; ++request) add(request);
  for (std::uint32_t request = 2; request <= 300; request += 2) remove(request);
  EXPECT_EQ(arrivals.waiting(0), 150u);
  EXPECT_EQ(arrivals.waiting_before(RequestId{1}, 0), 0u);
  EXPECT_EQ(arrivals.waiting_before(RequestId{101}, 0), 50u);
  EXPECT_EQ(arrivals.waiting_before(RequestId{100}, 0), 50u) << "it has gone";
  EXPECT_EQ(arrivals.waiting_before(RequestId{999}, 0), 150u) << "it has never come";
}

TEST_F(ArrivalsTest, MarksInTheOrderTheyCame) {
  for (std::uint32_t request = 1; request <= 5; ++request) add(request);
  remove(1);
  EXPECT_EQ(arrivals.marked(), 2u);
  arrivals.pass();
  remove(3);
  EXPECT_EQ(arrivals.marked(), 4u);
  arrivals.pass();
  arrivals.pass();
  EXPECT_EQ(arrivals.marked(), Arrivals::kNone);
  add(6);
  EXPECT_EQ(arrivals.marked(), 6u);
  arrivals.unmark();
  EXPECT_EQ(arrivals.marked(), 2u);
}

TEST_F(ArrivalsTest, PlaceThatIsKeptIsFilledOnceAndCountsFromThenOn) {
  for (std::uint32_t request = 1; request <= 3; ++request) keep(request);
  EXPECT_EQ(arrivals.marked(), Arrivals::kNone);
  add(4);
  EXPECT_EQ(arrivals.marked(), 4u);
  EXPECT_EQ(arrivals.waiting_before(RequestId{4}, 0), 0u);
  renumber();
  EXPECT_TRUE(fill(2));
  EXPECT_FALSE(fill(2));
  EXPECT_FALSE(fill(4));
  EXPECT_FALSE(fill(5));
  EXPECT_EQ(arrivals.waiting_before(RequestId{4}, 0), 1u);
  EXPECT_EQ(arrivals.marked(), 2u) << "the mark returns to whoever came late";
  arrivals.release(RequestId{1});
  arrivals.release(RequestId{2});
  renumber();
  EXPECT_FALSE(fill(1));
  EXPECT_TRUE(fill(3));
  std::vector<std::uint32_t> seen;
  arrivals.for_each([&](std::uint32_t slot) { seen.push_back(slot); });
  EXPECT_EQ(seen, (std::vector<std::uint32_t>{2, 3, 4})) << "release() ends a place, not a request";
}

TEST_F(ArrivalsTest, KeepTheMarkThroughRenumbering) {
  for (std::uint32_t request = 1; request <= 5; ++request) add(request);
  arrivals.pass();
  arrivals.pass();
  remove(1);
  renumber();
  EXPECT_EQ(arrivals.marked(), 3u);
  for (int i = 0; i < 3; ++i) arrivals.pass();
  renumber();
  add(6);
  EXPECT_EQ(arrivals.marked(), 6u);
}

TEST_F(ArrivalsTest, DoNotGrowWithThoseThatHaveGoneWhileOneStays) {
  add(1);
  for (std::uint32_t request = 2; request < 100'000; ++request) {
    add(request);
    remove(request);
  }
  EXPECT_LE(most_places, 2u);
  EXPECT_EQ(arrivals.waiting(0), 1u);
  EXPECT_EQ(arrivals.marked(), 1u);
}

TEST_F(ArrivalsTest, AgreeWithAPlainListWhateverComesAndGoes) {
  std::mt19937 random(7);
  std::vector<std::uint32_t> plain;
  for (std::uint32_t request = 1; request < 4000; ++request) {
    add(request);
    plain.push_back(request);
    for (auto gone = random() % 3; gone > 0 && !plain.empty(); --gone) {
      const auto place = static_cast<std::ptrdiff_t>(random() % plain.size());
      remove(plain[static_cast<std::size_t>(place)]);
      plain.erase(plain.begin() + place);
    }
    const auto asked = static_cast<std::uint32_t>(random() % (request + 2));
    const auto before = std::ranges::lower_bound(plain, asked) - plain.begin();
    ASSERT_EQ(arrivals.waiting_before(RequestId{asked}, 0), static_cast<std::size_t>(before));
    ASSERT_EQ(arrivals.marked(), plain.empty() ? Arrivals::kNone : plain.front());
  }
}

}  // namespace
}  // namespace gpumem::core
