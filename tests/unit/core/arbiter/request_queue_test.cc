#include "daemon/core/arbiter/request_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace gpumem::core {
namespace {

using Queue = RequestQueue<1>;
constexpr Bytes kAny{~0ULL};

// What a queue promises, the slow way.
class PlainQueue {
 public:
  void add(RequestId request, Bytes least) {
    entries_.insert(std::ranges::lower_bound(entries_, request, {}, &Queue::Entry::request),
                    {request, {least}});
  }
  void remove(RequestId request) {
    std::erase_if(entries_, [&](const Queue::Entry& entry) { return entry.request == request; });
  }
  std::optional<RequestId> first_at_most(Bytes bytes) const {
    const auto found =
        std::ranges::find_if(entries_, [&](const Queue::Entry& one) { return one.min_bytes[0] <= bytes; });
    return found == entries_.end() ? std::nullopt : std::optional(found->request);
  }
  const std::vector<Queue::Entry>& entries() const { return entries_; }

 private:
  std::vector<Queue::Entry> entries_;
};

std::optional<RequestId> request_of(const std::optional<Queue::Entry>& entry) {
  return entry ? std::optional(entry->request) : std::nullopt;
}

TEST(RequestQueue, FindsTheFirstThatIsContentWithAnAmount) {
  Queue queue;
  queue.add(RequestId{3}, {Bytes{30}});
  queue.add(RequestId{5}, {Bytes{10}});
  queue.add(RequestId{9}, {Bytes{10}});
  EXPECT_EQ(queue.first_at_most({kAny})->request, RequestId{3});
  EXPECT_EQ(queue.first_at_most({Bytes{29}})->request, RequestId{5});
  EXPECT_EQ(queue.first_at_most({Bytes{29}})->min_bytes[0], Bytes{10});
  EXPECT_FALSE(queue.first_at_most({Bytes{9}}));
  queue.remove(RequestId{5});
  EXPECT_EQ(queue.first_at_most({Bytes{29}})->request, RequestId{9});
}

TEST(RequestQueue, IsAsNewOnceItIsEmpty) {
  Queue queue;
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.first_at_most({kAny}));
  queue.add(RequestId{7}, {Bytes{1}});
  queue.remove(RequestId{7});
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.first_at_most({kAny}));
  queue.add(RequestId{8}, {Bytes{2}});
  EXPECT_EQ(queue.first_at_most({kAny})->request, RequestId{8});
}

TEST(RequestQueue, AnswersAsAPlainListDoesWhateverComesAndGoes) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Queue queue;
    PlainQueue plain;
    std::uint64_t last = 0;
    for (int step = 0; step < 500; ++step) {
      const auto& entries = plain.entries();
      if (entries.empty() || random() % 100 < (step / 100 % 2 == 0 ? 70u : 30u)) {
        last += 1 + random() % 3;
        const Bytes least{random() % 50};
        queue.add(RequestId{last}, {least});
        plain.add(RequestId{last}, least);
      } else {
        const RequestId gone = entries[random() % entries.size()].request;
        queue.remove(gone);
        plain.remove(gone);
      }
      const Bytes bytes{random() % 60};
      ASSERT_EQ(queue.size(), plain.entries().size()) << "seed " << seed << " step " << step;
      ASSERT_EQ(request_of(queue.first_at_most({bytes})), plain.first_at_most(bytes))
          << seed << " step " << step;
      ASSERT_EQ(request_of(queue.first_at_most({kAny})), plain.first_at_most(kAny))
          << seed << " step " << step;
    }
  }
}

// As after a restart: some of those that waited before come back, in any order, among those that are new.
TEST(RequestQueue, AnswersAsAPlainListDoesWhenSomeComeLate) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Queue queue;
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
      queue.add(RequestId{next}, {least});
      plain.add(RequestId{next}, least);
      if (random() % 3 == 0) {
        const RequestId gone = plain.entries()[random() % plain.entries().size()].request;
        queue.remove(gone);
        plain.remove(gone);
      }
      const Bytes bytes{random() % 60};
      ASSERT_EQ(request_of(queue.first_at_most({bytes})), plain.first_at_most(bytes)) << seed << " " << fresh;
      ASSERT_EQ(request_of(queue.first_at_most({kAny})), plain.first_at_most(kAny)) << seed << " " << fresh;
    }
  }
}

TEST(RequestQueue, FindsTheFirstAfterAnotherWhoseAmountsAllFit) {
  RequestQueue<2> queue;
  queue.add(RequestId{1}, {Bytes{9}, Bytes{1}});
  queue.add(RequestId{2}, {Bytes{1}, Bytes{9}});
  queue.add(RequestId{3}, {Bytes{5}, Bytes{5}});
  queue.add(RequestId{4}, {Bytes{4}, Bytes{4}});
  EXPECT_EQ(queue.first_at_most({Bytes{5}, Bytes{5}})->request, RequestId{3});
  EXPECT_EQ(queue.first_at_most({Bytes{5}, Bytes{5}}, RequestId{3})->request, RequestId{4});
  EXPECT_FALSE(queue.first_at_most({Bytes{5}, Bytes{5}}, RequestId{4}));
  EXPECT_FALSE(queue.first_at_most({Bytes{8}, Bytes{3}}));
}

TEST(RequestQueueDeathTest, AbortsOnRequestsThatComeTwiceAndOnThoseThatAreNotThere) {
  Queue queue;
  queue.add(RequestId{5}, {Bytes{1}});
  EXPECT_DEATH(queue.add(RequestId{5}, {Bytes{1}}), "a request comes once");
  EXPECT_DEATH(queue.remove(RequestId{4}), "the request is in the queue");
  queue.add(RequestId{6}, {Bytes{1}});
  queue.remove(RequestId{5});
  EXPECT_DEATH(queue.remove(RequestId{5}), "the request is in the queue");
}

}  // namespace
}  // namespace gpumem::core
