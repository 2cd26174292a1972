#include "daemon/kubernetes/device_plugin/units.h"

#include <gtest/gtest.h>

#include <thread>

namespace gpumem::kubernetes {
namespace {

constexpr std::chrono::milliseconds kNow{0};

Device some_device(const std::string& uuid, Bytes pool) {
  return {.uuid = uuid, .name = device_name(uuid), .model = {}, .pool = pool};
}

TEST(OfferedUnitsTest, AreToldOnceUnlessTheyChangeOrAreToBeToldAgain) {
  OfferedUnits offered(gibibytes(1));
  std::uint64_t heard = 0;
  offered.tell_again();  // nothing is known yet
  EXPECT_FALSE(offered.next(heard, kNow));
  ASSERT_TRUE(offered.set_lent({some_device("GPU-a", gibibytes(4))}));
  EXPECT_TRUE(offered.next(heard, kNow));
  ASSERT_TRUE(offered.set_lent({some_device("GPU-a", gibibytes(4))}));
  EXPECT_FALSE(offered.next(heard, kNow));
  offered.tell_again();
  EXPECT_TRUE(offered.next(heard, kNow));
  offered.set_away();
  const auto away = offered.next(heard, kNow);
  ASSERT_TRUE(away);
  EXPECT_EQ(*away, (OfferedUnits::Devices{{"GPU-a", 4, false}}));
}

TEST(OfferedUnitsTest, EachListenerHearsForItself) {
  OfferedUnits offered(gibibytes(1));
  ASSERT_TRUE(offered.set_lent({some_device("GPU-a", gibibytes(4))}));
  std::uint64_t one = 0, other = 0;
  EXPECT_TRUE(offered.next(one, kNow));
  EXPECT_TRUE(offered.next(other, kNow));
  EXPECT_FALSE(offered.next(one, kNow));
}

TEST(OfferedUnitsTest, NobodyWaitsAfterTheEnd) {
  OfferedUnits offered(gibibytes(1));
  std::uint64_t heard = 0;
  std::thread waiting([&] { EXPECT_FALSE(offered.next(heard, std::chrono::hours(1))); });
  offered.stop();
  waiting.join();
  EXPECT_TRUE(offered.is_stopped());
}

TEST(OfferedUnitsTest, DeviceThatIsLentNoMoreKeepsItsUnitsWithoutHealth) {
  OfferedUnits offered(gibibytes(1));
  ASSERT_TRUE(offered.set_lent({some_device("GPU-a", gibibytes(4)), some_device("GPU-b", gibibytes(2))}));
  ASSERT_TRUE(offered.set_lent({some_device("GPU-b", gibibytes(3))}));
  EXPECT_EQ(offered.devices(), (OfferedUnits::Devices{{"GPU-a", 4, false}, {"GPU-b", 3, true}}));
  EXPECT_TRUE(offered.check({"GPU-b::2"}));
  EXPECT_FALSE(offered.check({"GPU-b::2", "GPU-b::3"}));
}

TEST(OfferedUnitsTest, MoreThanTheKubeletTakesAreRefusedAndChangeNothing) {
  OfferedUnits offered(mebibytes(2));
  ASSERT_TRUE(offered.set_lent({some_device("GPU-a", gibibytes(64))}));  // the most
  const auto refused = offered.set_lent({some_device("GPU-a", gibibytes(64) + mebibytes(2))});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("use a larger --unit"), std::string::npos);
  EXPECT_EQ(offered.devices(), (OfferedUnits::Devices{{"GPU-a", 32'768, true}}));
}

}  // namespace
}  // namespace gpumem::kubernetes
