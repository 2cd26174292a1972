#include "shm/seqlock.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace gpumem {
namespace {

struct Words {
  std::array<std::uint64_t, 64> all{};
};

Words all_of(std::uint64_t value) {
  Words words;
  words.all.fill(value);
  return words;
}

bool torn(const Words& words) {
  for (const std::uint64_t word : words.all) {
    if (word != words.all.front()) return true;
  }
  return false;
}

TEST(Seqlock, ReadsWhatWasWritten) {
  std::uint64_t sequence = 0;
  Words shared;
  seqlock_write(sequence, shared, all_of(7));
  EXPECT_EQ(sequence, 2u);
  const auto copy = seqlock_read(sequence, shared);
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->all.back(), 7u);
}

TEST(Seqlock, NeverShowsReadersATornValueNorAnOlderOneAfterANewer) {
  constexpr std::uint64_t kWrites = 50'000;
  std::uint64_t sequence = 0;
  Words shared;
  std::atomic<bool> done = false;
  std::atomic<std::uint64_t> faults = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      std::uint64_t last = 0;
      while (!done) {
        const auto copy = seqlock_read(sequence, shared);
        if (!copy) continue;
        if (torn(*copy) || copy->all.front() < last) ++faults;
        last = copy->all.front();
      }
    });
  }
  for (std::uint64_t value = 1; value <= kWrites; ++value) seqlock_write(sequence, shared, all_of(value));
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(faults, 0u);
  EXPECT_EQ(seqlock_read(sequence, shared)->all.front(), kWrites);
}

TEST(Seqlock, ReadsNothingAfterAWriterThatDiedHalfWay) {
  std::uint64_t sequence = 3;
  const Words shared;
  EXPECT_FALSE(seqlock_read(sequence, shared));
}

TEST(Seqlock, IsRepairedByTheNextWriterAfterOneThatDiedHalfWay) {
  std::uint64_t sequence = 3;
  Words shared;
  seqlock_write(sequence, shared, all_of(9));
  EXPECT_EQ(sequence, 4u);
  EXPECT_EQ(seqlock_read(sequence, shared)->all.front(), 9u);
}

TEST(Seqlock, GoesOnWhenItsSequenceWrapsRound) {
  std::uint64_t sequence = ~0ULL - 1;
  Words shared;
  seqlock_write(sequence, shared, all_of(1));
  EXPECT_EQ(sequence, 0u);
  EXPECT_TRUE(seqlock_read(sequence, shared));
}

}  // namespace
}  // namespace gpumem
