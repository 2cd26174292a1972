// Sealed regions, from publishing to an upgrade of the broker.
#include <gmock/gmock.h>

#include <csignal>

#include "tests/integration/regions/region_commands.h"
#include "tests/integration/regions/region_fixture.h"

namespace gpumem::test {
namespace {

using testing::HasSubstr;

const Json kSealed{{"sealed", true}};

struct RegionSeal : RegionTest {};

TEST_F(RegionSeal, ItsPublisherCannotWriteToItEither) {
  auto writer = publisher(mebibytes(4), 7, {}, kSealed);
  auto reader = client();
  ASSERT_TRUE(succeeded(map(*reader)));
  writer->tell({{"do", "store"}, {"slice", "a"}});
  EXPECT_EQ(writer->child().wait(), -SIGSEGV) << "on the simulated driver device memory is the process's";
  EXPECT_TRUE(succeeded(check(*reader, 7)));
}

TEST_F(RegionSeal, TheRestOfTheSliceIsWrittenToAsBefore) {
  auto writer = client_with(mebibytes(4));
  ASSERT_TRUE(succeeded(writer->write("a", 7)));
  ASSERT_TRUE(succeeded(publish(*writer, {{"sealed", true}, {"bytes", mebibytes(4).count}})));
  ASSERT_TRUE(succeeded(writer->grow("a", mebibytes(8))));
  EXPECT_TRUE(succeeded(writer->ask({{"do", "store"}, {"slice", "a"}, {"offset", mebibytes(6).count}})));
}

TEST_F(RegionSeal, NobodyMapsItToWriteAlsoAtTheNextBroker) {
  auto writer = publisher(mebibytes(2), 7, {}, kSealed);
  auto mate = client();
  const auto is_refused = [&](Json command) {
    const Json answer = mate->ask(std::move(command));
    return failed_with(answer, "FAILED_PRECONDITION") &&
           message(answer).find("is sealed") != std::string::npos;
  };
  const Json by_name{{"do", "map_region"}, {"region", "weights"}, {"writable", true}};
  const Json or_reserved{{"do", "map_or_reserve"}, {"region", "weights"}, {"writable", true}};
  EXPECT_TRUE(is_refused(by_name));
  EXPECT_TRUE(is_refused(or_reserved));
  ASSERT_EQ(broker_.upgrade().status, 0);
  EXPECT_TRUE(is_refused(by_name));
  EXPECT_TRUE(succeeded(map(*mate)));
  EXPECT_TRUE(succeeded(check(*mate, 7)));
}

struct SealedFiles : RegionCommands {};

TEST_F(SealedFiles, AreShownAsSealed) {
  auto published = publish({"--seal", file("weights.bin", some_content())});
  const Json all = regions();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(all[0]["sealed"]);
  EXPECT_THAT(gpumem({"regions"}).output, HasSubstr("  yes  "));
  EXPECT_EQ(gpumem({"cat", "weights.bin"}).output, some_content());
}

}  // namespace
}  // namespace gpumem::test
