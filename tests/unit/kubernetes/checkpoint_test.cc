#include "daemon/kubernetes/claims/checkpoint.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace gpumem::kubernetes {
namespace {

PreparedClaims some_claims() {
  const Share share{.request = "gpu",
                    .pool = "node-1",
                    .device = "gpu-a",
                    .share_id = "s",
                    .guarantee = gibibytes(8),
                    .limit = {~std::uint64_t{0}}};
  const PreparedClaim claim{.claim = {.space = "team", .name = "train", .uid = "u"},
                            .standalone = true,
                            .pods = {{"p", "pod"}},
                            .shares = {{share, "GPU-A"}}};
  return {{"u", claim}};
}

TEST(CheckpointTest, IsReadAsItWasWritten) {
  const gpumem::test::TemporaryFolder folder;
  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(checkpoint.load().error().code, Code::kNotFound);
  ASSERT_TRUE(checkpoint.save(some_claims()));
  const auto read = checkpoint.load();
  ASSERT_TRUE(read) << read.error().message;
  const PreparedClaim& one = read->at("u");
  EXPECT_EQ(one.claim.text(), "team/train");
  EXPECT_TRUE(one.standalone);
  EXPECT_EQ(one.pods, some_claims().at("u").pods);
  EXPECT_EQ(one.shares, some_claims().at("u").shares);
}

TEST(CheckpointTest, EveryTruncationAndEveryChangedByteIsSeen) {
  const gpumem::test::TemporaryFolder folder;
  const Checkpoint checkpoint(folder.path());
  ASSERT_TRUE(checkpoint.save(some_claims()));
  const std::string whole = gpumem::test::read_file(checkpoint.file());
  for (std::size_t length = 0; length + 1 < whole.size();
       ++length) {  // without the last line's end it is whole
    gpumem::test::write_file(checkpoint.file(), whole.substr(0, length));
    EXPECT_FALSE(checkpoint.load()) << length;
  }
  std::string changed = whole;
  changed.replace(changed.find("train"), 5, "trick");
  gpumem::test::write_file(checkpoint.file(), changed);
  EXPECT_EQ(checkpoint.load().error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace gpumem::kubernetes
