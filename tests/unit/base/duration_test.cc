#include "base/text/time_format.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace gpumem {
namespace {

using std::chrono::milliseconds;

TEST(Duration, IsReadWithItsUnit) {
  const std::vector<std::pair<const char*, milliseconds>> known{
      {"500ms", milliseconds(500)}, {"90s", milliseconds(90'000)},   {"10m", milliseconds(600'000)},
      {"7", milliseconds(7'000)},   {"2h", milliseconds(7'200'000)}, {"3d", milliseconds(259'200'000)},
      {"0s", milliseconds(0)},      {"0", milliseconds(0)},          {"366d", std::chrono::hours(366 * 24)}};
  for (const auto& [text, span] : known) {
    const auto read = parse_duration(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(*read, span) << text;
  }
}

TEST(Duration, IsRefusedWhereItCannotBeMeant) {
  for (const char* text : {"", "s", "ms", "-3s", "3 s", "3x", "3S", "1.5s", "+1s", "99999999999d", "367d",
                           "9223372036854775807ms", "9223372036854775808s"})
    EXPECT_FALSE(parse_duration(text)) << text;
}

}  // namespace
}  // namespace gpumem
