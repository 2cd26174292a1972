// Instants as text, and back.
#include "base/text/time_format.h"

#include <gtest/gtest.h>

namespace gpumem {
namespace {

using std::chrono::microseconds;

const auto kNoon = std::chrono::system_clock::time_point(std::chrono::seconds(1'893'585'600));

TEST(Rfc3339, IsReadWithFractionsAndOffsets) {
  EXPECT_EQ(parse_rfc3339("2030-01-02T12:00:00Z"), kNoon);
  EXPECT_EQ(parse_rfc3339("2030-01-02T12:00:00.123456Z"), kNoon + microseconds(123'456));
  EXPECT_EQ(parse_rfc3339("2030-01-02T12:00:00.5Z"), kNoon + microseconds(500'000));
  EXPECT_EQ(parse_rfc3339("2030-01-02T12:00:00.1234567899Z"), kNoon + microseconds(123'456));
  EXPECT_EQ(parse_rfc3339("2030-01-02T14:30:00+02:30"), kNoon);
  EXPECT_EQ(parse_rfc3339("2030-01-02T11:00:00-01:00"), kNoon);
}

TEST(Rfc3339, IsRefusedWhereItNamesNoInstant) {
  for (const char* text :
       {"", "yesterday", "2030-01-02", "2030-01-02T12:00:00", "2030-01-02 12:00:00Z", "2030-02-30T12:00:00Z",
        "2030-13-02T12:00:00Z", "2030-01-02T24:00:00Z", "2030-01-02T12:60:00Z", "2030-01-02T12:00:00.Z",
        "2030-01-02T12:00:00Zz", "2030-01-02T12:00:00+2:00", "2030-01-02T12:00:00+24:00",
        "1969-12-31T23:59:59Z", "9999-01-01T00:00:00Z", " 2030-01-02T12:00:00Z", "+030-01-02T12:00:00Z"}) {
    EXPECT_FALSE(parse_rfc3339(text)) << text;
  }
}

TEST(Rfc3339, IsWrittenInUtc) {
  const auto later = kNoon + microseconds(7);
  EXPECT_EQ(to_rfc3339(later, Precision::kSeconds), "2030-01-02T12:00:00Z");
  EXPECT_EQ(to_rfc3339(later, Precision::kMicroseconds), "2030-01-02T12:00:00.000007Z");
  EXPECT_EQ(parse_rfc3339(to_rfc3339(later, Precision::kMicroseconds)), later);
}

}  // namespace
}  // namespace gpumem
