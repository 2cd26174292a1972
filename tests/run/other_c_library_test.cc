// Programs that the drop-in driver cannot serve, because they are made for another C library.
#include "tests/run/fixture.h"

namespace gpumem::test {
namespace {

using OtherCLibrary = RunTest;

TEST_F(OtherCLibrary, MuslIsRefusedInWordsAndStartedWithoutGpumemIfThatIsAllowed) {
  std::string program = read_file("/bin/true");
  const auto loader = program.find("/ld-linux");
  ASSERT_NE(loader, std::string::npos);
  write_file(folder_ / "of-musl", program.replace(loader, 9, "/ld-musl-"));
  std::filesystem::permissions(folder_ / "of-musl", std::filesystem::perms::all);
  const Variables path{{"PATH", folder_.path().string() + ":/usr/bin"}};
  const Outcome refused = gpumem({"run", "of-musl"}, path);
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(says(refused.output, "'of-musl' is made for the C library musl (/lib"));
  EXPECT_TRUE(says(refused.output, "take a build for glibc"));
  const Outcome plain = gpumem({"run", "--optional", folder_ / "of-musl"}, path);
  EXPECT_TRUE(says(plain.output, "the command runs without gpumem"));
  EXPECT_EQ(plain.status, 127) << "its loader is not there";
  EXPECT_EQ(gpumem({"run", "true"}, path).status, 0);
}

}  // namespace
}  // namespace gpumem::test
