#include "daemon/host/loop/pending_answers.h"

#include <gtest/gtest.h>

namespace gpumem::host {
namespace {

struct PendingGrowthsTest : testing::Test {
  void add(std::uint64_t request, std::uint64_t session) {
    pending.add(RequestId{request}, SessionId{session},
                [this, request](const auto&) { answered.push_back(request); });
  }
  static void answer(const PendingGrowths::Answer& one) { one(core::GrowFailure{}); }

  PendingGrowths pending;
  std::vector<std::uint64_t> answered;
};

TEST_F(PendingGrowthsTest, AreTakenOnce) {
  add(1, 7);
  auto one = pending.take(RequestId{1});
  ASSERT_TRUE(one);
  answer(*one);
  EXPECT_EQ(answered, std::vector<std::uint64_t>{1});
  EXPECT_FALSE(pending.take(RequestId{1}));
  EXPECT_TRUE(pending.take_all_of(SessionId{7}).empty());
}

TEST_F(PendingGrowthsTest, OfASessionAreTakenAlone) {
  add(1, 7);
  add(2, 8);
  add(3, 7);
  EXPECT_EQ(pending.take_all_of(SessionId{7}).size(), 2U);
  EXPECT_FALSE(pending.take(RequestId{3}));
  EXPECT_TRUE(pending.take(RequestId{2}));
  EXPECT_EQ(pending.size(), 0U);
}

}  // namespace
}  // namespace gpumem::host
