#include "gpumem/bytes.h"

#include <gtest/gtest.h>

#include <limits>

namespace gpumem {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

std::uint64_t parsed(std::string_view text) {
  const auto bytes = parse_bytes(text);
  EXPECT_TRUE(bytes) << text;
  return bytes ? bytes->count : ~0ULL;
}

class RefusedBytes : public testing::TestWithParam<std::string_view> {};

TEST_P(RefusedBytes, AreAnInvalidArgumentThatQuotesTheText) {
  const auto bytes = parse_bytes(GetParam());
  ASSERT_FALSE(bytes) << bytes->count;
  EXPECT_EQ(bytes.error().code, Code::kInvalidArgument);
  EXPECT_NE(bytes.error().message.find("'" + std::string(GetParam()) + "'"), std::string::npos)
      << bytes.error().message;
}

INSTANTIATE_TEST_SUITE_P(Text, RefusedBytes,
                         testing::Values("", " ", "-1", "-1GiB", "+1", "GiB", "1 2", "1GiBs", "1XiB", "0x10",
                                         "1e3", "1,5GiB", ".5GiB", "1.GiB", "1.5", "0.5B", "nan", "inf",
                                         "1--", "1.0000001KiB", "1.2.3GiB", "512MiB 1", "50%",
                                         "all-but 1GiB"));

INSTANTIATE_TEST_SUITE_P(Overflow, RefusedBytes,
                         testing::Values("18446744073709551616", "18446744073709551615KiB", "16384PiB",
                                         "99999999999999999999999999", "16777216TiB",
                                         // 2^72 / 15625, rounded up: in millionths it wraps past 2^128.
                                         "302231454903657294PiB", "18446744073709551615PiB"));

TEST(ParseBytes, ReadsPlainNumbersUpToTheLargest) {
  EXPECT_EQ(parsed("0"), 0u);
  EXPECT_EQ(parsed("4096"), 4096u);
  EXPECT_EQ(parsed("18446744073709551615"), kMost);
  EXPECT_EQ(parsed("18446744073709551615B"), kMost);
  EXPECT_EQ(parsed("16383PiB"), 16383ULL << 50);
}

TEST(ParseBytes, ReadsBinaryAndDecimalUnitsInAnyCase) {
  EXPECT_EQ(parsed("512MiB"), 512ULL << 20);
  EXPECT_EQ(parsed("512mib"), 512ULL << 20);
  EXPECT_EQ(parsed("3K"), 3ULL << 10);
  EXPECT_EQ(parsed("3g"), 3ULL << 30);
  EXPECT_EQ(parsed("10 GB"), 10'000'000'000u);
  EXPECT_EQ(parsed("  2 TiB\t"), 2ULL << 40);
  EXPECT_EQ(parsed("7tb"), 7'000'000'000'000u);
}

TEST(ParseBytes, ReadsDecimalsExactly) {
  EXPECT_EQ(parsed("1.5GiB"), 3ULL << 29);
  EXPECT_EQ(parsed("0.000001MB"), 1u);
  EXPECT_EQ(parsed("16383.999999PiB"), 18446744072583651709ULL);
  EXPECT_EQ(parsed("4096.0"), 4096u);
}

TEST(ParseBytes, DropsWhatRemainsBelowOneByte) {
  EXPECT_EQ(parsed("1.1GiB"), 1'181'116'006u);
  EXPECT_EQ(parsed("0.0001KiB"), 0u);
}

TEST(PrintBytes, TakesTheLargestBinaryUnit) {
  EXPECT_EQ(to_string(Bytes{0}), "0B");
  EXPECT_EQ(to_string(Bytes{1023}), "1023B");
  EXPECT_EQ(to_string(kibibytes(1)), "1KiB");
  EXPECT_EQ(to_string(mebibytes(512)), "512MiB");
  EXPECT_EQ(to_string(mebibytes(1536)), "1.5GiB");
  EXPECT_EQ(to_string(mebibytes(1280)), "1.25GiB");
  EXPECT_EQ(to_string(Bytes{kMost}), "16383.99PiB");
}

TEST(PrintBytes, NeverRoundsUp) { EXPECT_EQ(to_string(Bytes{(2ULL << 30) - 1}), "1.99GiB"); }

TEST(PrintBytes, IsReadBackToTheSameAmountWhereItIsExact) {
  for (const Bytes bytes :
       {Bytes{0}, Bytes{777}, kibibytes(3), mebibytes(2), mebibytes(1792), gibibytes(80)}) {
    EXPECT_EQ(parsed(to_string(bytes)), bytes.count);
  }
}

TEST(BytesArithmetic, AnswersNothingInsteadOfWrapping) {
  EXPECT_EQ(Bytes{kMost}.plus({1}), std::nullopt);
  EXPECT_EQ(Bytes{kMost}.plus({0}), Bytes{kMost});
  EXPECT_EQ(Bytes{kMost - 1}.rounded_up(mebibytes(2)), std::nullopt);
  EXPECT_EQ(Bytes{1}.rounded_up(mebibytes(2)), mebibytes(2));
  EXPECT_EQ(Bytes{0}.rounded_up(mebibytes(2)), Bytes{0});
  EXPECT_EQ(Bytes{kMost}.rounded_down(kibibytes(1)), Bytes{kMost - 1023});
}

TEST(BytesArithmetic, SubtractsDownToZeroOnly) {
  EXPECT_EQ(Bytes{3}.minus({5}), Bytes{0});
  EXPECT_EQ(Bytes{5}.minus({3}), Bytes{2});
}

TEST(BytesArithmeticDeathTest, TrapsWhereTheCallerPromisedThatItFits) {
  Bytes most{kMost};
  Bytes one{1};
  EXPECT_DEATH(most += Bytes{1}, "");
  EXPECT_DEATH(one -= Bytes{2}, "");
}

}  // namespace
}  // namespace gpumem
