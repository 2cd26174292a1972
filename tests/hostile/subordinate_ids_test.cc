// The users of one person's containers are one user.

#include "tests/integration/fixture.h"
#include "tests/support/temporary_folder.h"

namespace gpumem::test {
namespace {

struct Ranges {
  Ranges() { write_file(folder / "subuid", std::to_string(kAnn.uid) + ":100000:65536\n"); }
  TemporaryFolder folder;
};

struct SubordinateUsers : Ranges, BrokerTest {
  SubordinateUsers()
      : BrokerTest({.config = shared("[default]\nlimit = \"64MiB\"\n"),
                    .arguments = {"--subuid-file", (folder / "subuid").string()}}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
};

TEST_F(SubordinateUsers, HaveTheirOwnersQuotaTogether) {
  auto outside = client_with(mebibytes(16), kAnn);
  auto first = client_with(mebibytes(16), test_user(100'000));
  auto last = client_with(mebibytes(32), test_user(165'535));
  for (ClientProcess* one : {outside.get(), first.get(), last.get()})
    EXPECT_TRUE(failed_with(one->grow("a", mebibytes(34)), "RESOURCE_EXHAUSTED"));
  EXPECT_EQ(broker_.tenant("uid:10001").charged(), mebibytes(64).count);
  auto other = client_with(mebibytes(64), test_user(165'536));
  expect_rest_after(*outside, *first, *last, *other);
}

}  // namespace
}  // namespace gpumem::test
