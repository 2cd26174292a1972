#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "daemon/core/memory/pool.h"
#include "daemon/core/words/types.h"

namespace gpumem::core {

/// A pool of 24 GiB in pieces of 2 MiB, empty at first.
class PoolTest : public testing::Test {
 protected:
  static constexpr std::size_t kAny = 1024;

  void fill(Bytes bytes) {
    for (const Extent& extent : pool.plan(bytes)) pool.add(extent);
  }
  void fill_with(std::size_t count, Bytes size) {
    for (std::size_t i = 0; i < count; ++i) pool.add({ids.next(), size});
  }
  // Does what the driver would do; checks that no byte is lost or made.
  void apply(const Reshape& reshape, Bytes before) {
    for (const Extent& extent : reshape.create) pool.add(extent);
    ASSERT_EQ(pool.warm(), before);
  }
  // Takes `bytes`, or has them made, as a store does, which must be possible. Answers the extents.
  std::vector<Extent> get(Bytes bytes, std::size_t most, Bytes largest = {}) {
    pool.note_demand(bytes, largest);
    const Bytes before = pool.warm();
    if (auto taken = pool.take(bytes, most, largest)) return std::move(*taken);
    auto making = pool.make(bytes, most, largest);
    EXPECT_TRUE(making) << "what is there is enough";
    if (!making) return {};
    EXPECT_FALSE(making->wanted.empty());
    for (const Extent& extent : making->rest) pool.add(extent);
    std::vector<Extent> all = std::move(making->taken);
    std::ranges::copy(making->wanted, std::back_inserter(all));
    EXPECT_EQ(total(all), bytes);
    EXPECT_EQ(pool.warm() + bytes, before);
    return all;
  }
  static Bytes total(const std::vector<Extent>& extents) {
    Bytes sum;
    for (const Extent& extent : extents) sum += extent.size;
    return sum;
  }
  std::size_t tidy_up() {
    for (std::size_t steps = 0;; ++steps) {
      const Bytes before = pool.warm();
      auto reshape = pool.tidy();
      if (!reshape || steps == 10'000) return steps;
      apply(*reshape, before);
    }
  }

  void start_over(Bytes size) { held_.emplace(size, mebibytes(2), ids); }

  IdSource<ExtentId> ids;
  std::optional<Pool> held_{std::in_place, gibibytes(24), mebibytes(2), ids};
  Pool& pool = *held_;
};

/// The sizes of what is taken, largest first; none if nothing is.
inline std::vector<Bytes> sizes_of(const std::optional<std::vector<Extent>>& taken) {
  std::vector<Bytes> sizes;
  for (const Extent& extent : taken.value_or(std::vector<Extent>())) sizes.push_back(extent.size);
  return sizes;
}

}  // namespace gpumem::core
