#include "daemon/core/sessions/waiting_places.h"

#include <gtest/gtest.h>

namespace gpumem::core {
namespace {

TEST(WaitingPlaces, APlaceIsTakenOnce) {
  constexpr SessionId kSession{1};
  constexpr SliceId kSlice{2};
  Outbox outbox;
  WaitingPlaces places(outbox);
  for (const RequestId id : {RequestId{5}, RequestId{7}})
    places.restore({id, kSession, TimePoint{}, TimePoint::max(), {kSlice}, {mebibytes(4)}});
  Request::Part part;
  part.slice = kSlice;
  part.min_bytes = mebibytes(4);
  const Request::Parts parts{part};
  EXPECT_EQ(places.take(kSession, parts, TimePoint{}), RequestId{5});
  EXPECT_EQ(places.take(kSession, parts, TimePoint{}), RequestId{7});
  EXPECT_FALSE(places.keeps_any());
  EXPECT_EQ(places.take(kSession, parts, TimePoint{}), std::nullopt);
  places.release(kSession, RequestId{5});
  EXPECT_FALSE(places.keeps_any()) << "it was taken before";
}

}  // namespace
}  // namespace gpumem::core
