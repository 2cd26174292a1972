// The format of saved regions, and the bar that tells how far a transfer is.
#include "client/cli/regions/saved_region.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "client/cli/regions/transfer_bar.h"

namespace gpumem::cli {
namespace {

TEST(SavedHeadTest, IsReadAsItWasWritten) {
  SavedHead head{0x0102'0304'0506'0708, 9, {}, {}};
  head.digest[0] = 1;
  head.digest[31] = 2;
  head.checksum[0] = 3;
  head.checksum[31] = 4;
  const SavedHead::Text text = head.text();
  EXPECT_EQ(std::string_view(text.data(), 8), "GMEMRGN1");
  EXPECT_EQ(text[8], 8) << "little-endian";
  const auto read = SavedHead::parse(text, head.size + SavedHead::kBytes);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->size, head.size);
  EXPECT_EQ(read->layout, head.layout);
  EXPECT_EQ(read->digest, head.digest);
  EXPECT_EQ(read->checksum, head.checksum);
}

TEST(SavedHeadTest, ChecksumIsSha256OfAllButItself) {
  const SavedHead head{3, 1, {}, {}};
  Checksum whole, parts;
  whole.add_head(head);
  whole.add(std::string_view("abc"));
  parts.add(std::span<const char>(head.text()).first(SavedHead::kChecksumAt));
  parts.add(std::string_view("ab"));
  parts.add(std::string_view("c"));
  EXPECT_EQ(whole.finish(), parts.finish());
  Checksum known;
  known.add(std::string_view("abc"));
  const Sha256 sum = known.finish();
  EXPECT_EQ(sum[0], 0xba);  // FIPS 180-2, appendix B.1
  EXPECT_EQ(sum[1], 0x78);
  EXPECT_EQ(sum[31], 0xad);
}

TEST(TransferTextTest, TellsHowFarItIsInOneLine) {
  const std::uint64_t whole = std::uint64_t{4} << 30;
  EXPECT_EQ(transfer_text("saving", 0, whole, 200), "saving [" + std::string(40, ' ') + "] 0B of 4GiB");
  EXPECT_EQ(transfer_text("saving", whole / 2, whole, 200),
            "saving [" + std::string(20, '#') + std::string(20, ' ') + "] 2GiB of 4GiB");
  EXPECT_EQ(transfer_text("saving", whole, whole, 200), "saving [" + std::string(40, '#') + "] 4GiB of 4GiB");
  EXPECT_EQ(transfer_text("saving", whole, whole, 20).size(), 19U);
}

}  // namespace
}  // namespace gpumem::cli
