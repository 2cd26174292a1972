#include "daemon/core/indexed_heap.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace gpumem::core {
namespace {

struct Entry {
  int value = 0;
  std::uint32_t item = 0;
  bool operator<(const Entry& other) const {
    return value != other.value ? value < other.value : item < other.item;
  }
};

TEST(IndexedHeap, HasTheSmallestOnTopWhateverComesChangesAndGoes) {
  std::mt19937 random(3);
  IndexedHeap<Entry> heap;
  HeapPositions positions;
  std::map<std::uint32_t, int> plain;
  for (int step = 0; step < 5000; ++step) {
    const auto item = static_cast<std::uint32_t>(random() % 80);
    const Entry entry{static_cast<int>(random() % 40), item};
    const std::uint32_t position = positions[item];
    ASSERT_EQ(position != HeapPositions::kNone, plain.contains(item));
    if (position == HeapPositions::kNone) {
      heap.add(entry, positions);
      plain[item] = entry.value;
    } else if (random() % 2 == 0) {
      heap.change(position, entry, positions);
      plain[item] = entry.value;
    } else {
      heap.remove(position, positions);
      plain.erase(item);
    }
    ASSERT_EQ(heap.empty(), plain.empty());
    if (plain.empty()) continue;
    Entry smallest{plain.begin()->second, plain.begin()->first};
    for (const auto& [other, value] : plain) smallest = std::min(smallest, Entry{value, other});
    ASSERT_EQ(heap.top().item, smallest.item);
    ASSERT_EQ(heap.top().value, smallest.value);
  }
}

TEST(IndexedHeap, SharesPositionsWithAnotherHeap) {
  IndexedHeap<Entry> one, other;
  HeapPositions positions;
  one.add({5, 1}, positions);
  other.add({4, 2}, positions);
  one.add({3, 3}, positions);
  other.remove(positions[2], positions);
  EXPECT_TRUE(other.empty());
  EXPECT_EQ(one.top().item, 3u);
  EXPECT_EQ(one.at(positions[1]).value, 5);
}

}  // namespace
}  // namespace gpumem::core
