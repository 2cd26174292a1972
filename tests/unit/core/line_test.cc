#include "daemon/core/line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace gpumem::core {
namespace {

// What a line promises, the slow way.
class PlainLine {
 public:
  void add(RequestId request, Bytes least) { entries_.push_back({request, least}); }
  void remove(RequestId request) {
    std::erase_if(entries_, [&](const Line::Entry& entry) { return entry.request == request; });
  }
  std::optional<RequestId> first_at_most(Bytes bytes) const {
    const auto found =
        std::ranges::find_if(entries_, [&](const Line::Entry& one) { return one.least <= bytes; });
    return found == entries_.end() ? std::nullopt : std::optional(found->request);
  }
  const std::vector<Line::Entry>& entries() const { return entries_; }

 private:
  std::vector<Line::Entry> entries_;
};

std::optional<RequestId> request_of(const std::optional<Line::Entry>& entry) {
  return entry ? std::optional(entry->request) : std::nullopt;
}

TEST(Line, FindsTheFirstThatIsContentWithAnAmount) {
  Line line;
  line.add(RequestId{3}, {30});
  line.add(RequestId{5}, {10});
  line.add(RequestId{9}, {10});
  EXPECT_EQ(line.first()->request, RequestId{3});
  EXPECT_EQ(line.first_at_most({29})->request, RequestId{5});
  EXPECT_EQ(line.first_at_most({29})->least, Bytes{10});
  EXPECT_FALSE(line.first_at_most({9}));
  line.remove(RequestId{5});
  EXPECT_EQ(line.first_at_most({29})->request, RequestId{9});
}

TEST(Line, IsAsNewOnceItIsEmpty) {
  Line line;
  EXPECT_TRUE(line.empty());
  EXPECT_FALSE(line.first());
  line.add(RequestId{7}, {1});
  line.remove(RequestId{7});
  EXPECT_TRUE(line.empty());
  EXPECT_FALSE(line.first_at_most({~0ULL}));
  line.add(RequestId{8}, {2});
  EXPECT_EQ(line.first()->request, RequestId{8});
}

TEST(Line, AnswersAsAPlainListDoesWhateverComesAndGoes) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Line line;
    PlainLine plain;
    std::uint64_t last = 0;
    for (int step = 0; step < 500; ++step) {
      const auto& entries = plain.entries();
      if (entries.empty() || random() % 100 < (step / 100 % 2 == 0 ? 70u : 30u)) {
        last += 1 + random() % 3;
        const Bytes least{random() % 50};
        line.add(RequestId{last}, least);
        plain.add(RequestId{last}, least);
      } else {
        const RequestId gone = entries[random() % entries.size()].request;
        line.remove(gone);
        plain.remove(gone);
      }
      const Bytes bytes{random() % 60};
      ASSERT_EQ(line.size(), plain.entries().size()) << "seed " << seed << " step " << step;
      ASSERT_EQ(request_of(line.first_at_most(bytes)), plain.first_at_most(bytes))
          << seed << " step " << step;
      ASSERT_EQ(request_of(line.first()), plain.first_at_most({~0ULL})) << seed << " step " << step;
    }
  }
}

TEST(LineDeathTest, AbortsOnRequestsOutOfOrderAndOnThoseThatAreNotThere) {
  Line line;
  line.add(RequestId{5}, {1});
  EXPECT_DEATH(line.add(RequestId{5}, {1}), "order of their ids");
  EXPECT_DEATH(line.remove(RequestId{4}), "only what is in the line");
  line.add(RequestId{6}, {1});
  line.remove(RequestId{5});
  EXPECT_DEATH(line.remove(RequestId{5}), "a request leaves once");
  EXPECT_DEATH(line.add(RequestId{7}, {~0ULL}), "can be asked for");
}

}  // namespace
}  // namespace gpumem::core
