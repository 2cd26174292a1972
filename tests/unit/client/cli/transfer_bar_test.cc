#include "client/cli/views/progress.h"

#include <gtest/gtest.h>

#include <string>

namespace gpumem::cli {
namespace {

TEST(TransferTextTest, TellsHowFarItIsInOneLine) {
  const std::uint64_t whole = std::uint64_t{4} << 30;
  EXPECT_EQ(transfer_text("loading", 0, whole, 200), "loading [" + std::string(40, ' ') + "] 0B of 4GiB");
  EXPECT_EQ(transfer_text("loading", whole / 2, whole, 200),
            "loading [" + std::string(20, '#') + std::string(20, ' ') + "] 2GiB of 4GiB");
  EXPECT_EQ(transfer_text("loading", whole, whole, 200),
            "loading [" + std::string(40, '#') + "] 4GiB of 4GiB");
  EXPECT_EQ(transfer_text("loading", whole, whole, 20).size(), 19U);
}

}  // namespace
}  // namespace gpumem::cli
