#include <gtest/gtest.h>

#include "gpumem/bytes.h"

namespace gpumem {
namespace {

Amount amount(std::string_view text) {
  const auto amount = parse_amount(text);
  EXPECT_TRUE(amount) << text;
  return amount ? *amount : Amount::absolute({});
}

TEST(ParseAmount, ReadsAbsoluteRelativeAndAllBut) {
  EXPECT_EQ(amount("24GiB"), Amount::absolute(gibibytes(24)));
  EXPECT_EQ(amount("25%"), Amount::percent(2500));
  EXPECT_EQ(amount(" 12.5 % "), Amount::percent(1250));
  EXPECT_EQ(amount("0%"), Amount::percent(0));
  EXPECT_EQ(amount("100.00%"), Amount::percent(10'000));
  EXPECT_EQ(amount("all"), Amount::percent(10'000));
  EXPECT_EQ(amount("all-but 2GiB"), Amount::all_but(gibibytes(2)));
}

TEST(ParseAmount, RefusesWhatIsNoAmount) {
  for (const auto* text : {"", "%", "-1%", "100.01%", "100.000001%", "101%", "99999999999999999999%", "5GiB%",
                           "all-but", "all-but -1", "all-but 5%", "all but 1GiB", "most", "1%%"}) {
    const auto amount = parse_amount(text);
    ASSERT_FALSE(amount) << text;
    EXPECT_EQ(amount.error().code, Code::kInvalidArgument);
  }
}

TEST(AmountOfAWhole, IsTakenWithoutOverflow) {
  const Bytes most{~0ULL};
  EXPECT_EQ(Amount::percent(10'000).of(most), most);
  EXPECT_EQ(Amount::percent(5'000).of(most), Bytes{most.count / 2});
  EXPECT_EQ(Amount::percent(0).of(most), Bytes{0});
  EXPECT_EQ(Amount::absolute(gibibytes(3)).of(gibibytes(1)), gibibytes(3));
}

TEST(AmountOfAWhole, IsZeroWhenAllButIsMoreThanThereIs) {
  EXPECT_EQ(Amount::all_but(gibibytes(2)).of(gibibytes(1)), Bytes{0});
  EXPECT_EQ(Amount::all_but(gibibytes(2)).of(gibibytes(24)), gibibytes(22));
}

TEST(AmountText, IsReadBackToTheSameAmount) {
  for (const auto* text : {"24GiB", "25%", "33.33%", "0.01%", "100%", "all-but 2GiB", "0B"}) {
    EXPECT_EQ(amount(text).text(), text);
    EXPECT_EQ(amount(amount(text).text()), amount(text));
  }
}

}  // namespace
}  // namespace gpumem
