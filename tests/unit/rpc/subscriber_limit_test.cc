#include "daemon/rpc/event_stream.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpumem::rpc {
namespace {

TEST(SubscriberLimit, RefusesAUserBeyondItsShareAlone) {
  const auto limit = std::make_shared<SubscriberLimit>();
  std::vector<std::shared_ptr<void>> followers;
  for (std::size_t i = 0; i < SubscriberLimit::kMaxPerUser; ++i) {
    followers.push_back(limit->add(1));
    EXPECT_TRUE(followers.back());
  }
  EXPECT_FALSE(limit->add(1));
  EXPECT_TRUE(limit->add(2));
  followers.pop_back();
  EXPECT_TRUE(limit->add(1));
}

TEST(SubscriberLimit, RefusesAnybodyWhereThereAreTooManyInAll) {
  const auto limit = std::make_shared<SubscriberLimit>();
  std::vector<std::shared_ptr<void>> followers;
  for (std::size_t i = 0; i < SubscriberLimit::kMax; ++i) {
    followers.push_back(limit->add(i / SubscriberLimit::kMaxPerUser));
    EXPECT_TRUE(followers.back());
  }
  EXPECT_FALSE(limit->add(4711));
  EXPECT_TRUE(limit->add(4711, true)) << "an administrator";
  followers.pop_back();
  EXPECT_TRUE(limit->add(4711));
}

}  // namespace
}  // namespace gpumem::rpc
