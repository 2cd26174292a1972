#include "daemon/core/request_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace gpumem::core {
namespace {

// What a queue promises, the slow way.
class PlainQueue {
 public:
  void add(RequestId request, Bytes least) {
    entries_.insert(std::ranges::lower_bound(entries_, request, {}, &RequestQueue::Entry::request),
                    {request, least});
  }
  void remove(RequestId request) {
    std::erase_if(entries_, [&](const RequestQueue::Entry& entry) { return entry.request == request; });
  }
  std::optional<RequestId> first_at_most(Bytes bytes) const {
    const auto found =
        std::ranges::find_if(entries_, [&](const RequestQueue::Entry& one) { return one.least <= bytes; });
    return found == entries_.end() ? std::nullopt : std::optional(found->request);
  }
  const std::vector<RequestQueue::Entry>& entries() const { return entries_; }

 private:
  std::vector<RequestQueue::Entry> entries_;
};

std::optional<RequestId> request_of(const std::optional<RequestQueue::Entry>& entry) {
  return entry ? std::optional(entry->request) : std::nullopt;
}

TEST(RequestQueue, FindsTheFirstThatIsContentWithAnAmount) {
  RequestQueue queue;
  queue.add(RequestId{3}, {30});
  queue.add(RequestId{5}, {10});
  queue.add(RequestId{9}, {10});
  EXPECT_EQ(queue.first()->request, RequestId{3});
  EXPECT_EQ(queue.first_at_most({29})->request, RequestId{5});
  EXPECT_EQ(queue.first_at_most({29})->least, Bytes{10});
  EXPECT_FALSE(queue.first_at_most({9}));
  queue.remove(RequestId{5});
  EXPECT_EQ(queue.first_at_most({29})->request, RequestId{9});
}

TEST(RequestQueue, IsAsNewOnceItIsEmpty) {
  RequestQueue queue;
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.first());
  queue.add(RequestId{7}, {1});
  queue.remove(RequestId{7});
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.first_at_most({~0ULL}));
  queue.add(RequestId{8}, {2});
  EXPECT_EQ(queue.first()->request, RequestId{8});
}

TEST(RequestQueue, AnswersAsAPlainListDoesWhateverComesAndGoes) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    RequestQueue queue;
    PlainQueue plain;
    std::uint64_t last = 0;
    for (int step = 0; step < 500; ++step) {
      const auto& entries = plain.entries();
      if (entries.empty() || random() % 100 < (step / 100 % 2 == 0 ? 70u : 30u)) {
        last += 1 + random() % 3;
        const Bytes least{random() % 50};
        queue.add(RequestId{last}, least);
        plain.add(RequestId{last}, least);
      } else {
        const RequestId gone = entries[random() % entries.size()].request;
        queue.remove(gone);
        plain.remove(gone);
      }
      const Bytes bytes{random() % 60};
      ASSERT_EQ(queue.size(), plain.entries().size()) << "seed " << seed << " step " << step;
      ASSERT_EQ(request_of(queue.first_at_most(bytes)), plain.first_at_most(bytes))
          << seed << " step " << step;
      ASSERT_EQ(request_of(queue.first()), plain.first_at_most({~0ULL})) << seed << " step " << step;
    }
  }
}

// As after a restart: some of those that waited before come back, in any order, among those that are new.
TEST(RequestQueue, AnswersAsAPlainListDoesWhenSomeComeLate) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    RequestQueue queue;
    PlainQueue plain;
    std::vector<std::uint64_t> late(100);
    std::iota(late.begin(), late.end(), 1);
    std::ranges::shuffle(late, random);
    for (std::uint64_t fresh = 101; fresh < 300; ++fresh) {
      std::uint64_t next = fresh;
      if (random() % 2 == 0 && !late.empty()) {
        next = late.back();
        late.pop_back();
      }
      const Bytes least{random() % 50};
      queue.add(RequestId{next}, least);
      plain.add(RequestId{next}, least);
      if (random() % 3 == 0) {
        const RequestId gone = plain.entries()[random() % plain.entries().size()].request;
        queue.remove(gone);
        plain.remove(gone);
      }
      const Bytes bytes{random() % 60};
      ASSERT_EQ(request_of(queue.first_at_most(bytes)), plain.first_at_most(bytes)) << seed << " " << fresh;
      ASSERT_EQ(request_of(queue.first()), plain.first_at_most({~0ULL})) << seed << " " << fresh;
    }
  }
}

TEST(RequestQueueDeathTest, AbortsOnRequestsThatComeTwiceAndOnThoseThatAreNotThere) {
  RequestQueue queue;
  queue.add(RequestId{5}, {1});
  EXPECT_DEATH(queue.add(RequestId{5}, {1}), "a request comes once");
  EXPECT_DEATH(queue.remove(RequestId{4}), "only what is in the queue");
  queue.add(RequestId{6}, {1});
  queue.remove(RequestId{5});
  EXPECT_DEATH(queue.remove(RequestId{5}), "a request leaves once");
  EXPECT_DEATH(queue.add(RequestId{7}, {~0ULL}), "can be asked for");
}

}  // namespace
}  // namespace gpumem::core
