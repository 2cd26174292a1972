#include "daemon/kubernetes/http/whole_file.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <optional>
#include <thread>

#include "tests/support/temporary_folder.h"

namespace gpumem::kubernetes {
namespace {

TEST(WholeFileTest, RemovalOfAMissingFileSucceedsOnAReadOnlyFileSystem) {
  const gpumem::test::TemporaryFolder folder;
  std::optional<Result<void>> removed;
  std::optional<Result<void>> kept;
  std::thread alone([&] {  // the mounts are its own, and end with it
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", folder.path().c_str(), "tmpfs", 0, nullptr) != 0)
      return;
    gpumem::test::write_file(folder / "there", "text");
    if (::mount("none", folder.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) return;
    removed = remove_file(folder / "gone");
    kept = remove_file(folder / "there");
  });
  alone.join();
  if (!removed) GTEST_SKIP() << "needs root, to mount";
  EXPECT_TRUE(*removed) << removed->error().message;
  ASSERT_FALSE(*kept);
  EXPECT_NE(kept->error().message.find("cannot remove " + (folder / "there").string()), std::string::npos);
}

TEST(WholeFileTest, RemovalOfAnImpossiblePathSucceeds) {
  const gpumem::test::TemporaryFolder folder;
  gpumem::test::write_file(folder / "file", "text");
  EXPECT_TRUE(remove_file(folder / "file" / "below"));
  EXPECT_TRUE(remove_file(folder / "none" / "below"));
  EXPECT_TRUE(remove_file(folder / "file"));
  EXPECT_FALSE(std::filesystem::exists(folder / "file"));
}

TEST(WholeFileTest, HalfWrittenFileIsRemovedWithTheFile) {
  const gpumem::test::TemporaryFolder folder;
  ASSERT_TRUE(replace_file(folder / "file", "text", 0600));
  gpumem::test::write_file(folder / "file.new", "te");
  EXPECT_TRUE(remove_file(folder / "file"));
  gpumem::test::write_file(folder / "file.new", "te");
  EXPECT_TRUE(remove_file(folder / "file"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace gpumem::kubernetes
