// Caches that this machine's ldconfig writes, and damaged ones.
#include "base/system/loader_cache.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/system/small_file.h"
#include "tests/support/temporary_folder.h"

namespace gpumem {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

class LoaderCache : public testing::Test {
 protected:
  /// A library of this machine's kind under another name, in a folder that ldconfig looks into.
  fs::path add_library(const std::string& folder, const std::string& name) {
    fs::create_directories(folder_ / folder);
    const fs::path file = folder_ / folder / name;
    fs::copy_file(libraries_in_cache("libm.so.6").at(0), file);
    std::ofstream(folder_ / "ld.so.conf", std::ios::app) << file.parent_path().string() << "\n";
    return file;
  }
  fs::path make_cache() {
    const fs::path cache = folder_ / "ld.so.cache";
    const std::string command =
        "/sbin/ldconfig -X -f " + (folder_ / "ld.so.conf").string() + " -C " + cache.string();
    EXPECT_EQ(std::system(command.c_str()), 0);
    return cache;
  }

  test::TemporaryFolder folder_;
};

TEST_F(LoaderCache, HasTheLibrariesInTheOrderOfTheirFolders) {
  const fs::path second = add_library("a-second", "libm.so.6"), first = add_library("b-first", "libm.so.6");
  std::ofstream(folder_ / "ld.so.conf") << first.parent_path().string() << "\n"
                                        << second.parent_path().string() << "\n";
  const auto found = libraries_in_cache("libm.so.6", make_cache());
  ASSERT_GE(found.size(), 2U);
  EXPECT_EQ(found[0], first);
  EXPECT_EQ(found[1], second);
}

TEST_F(LoaderCache, OfAnUnknownNameIsEmpty) {
  EXPECT_THAT(libraries_in_cache("libm.so"), IsEmpty());
  EXPECT_THAT(libraries_in_cache("libm.so.6", folder_ / "none"), IsEmpty());
}

TEST_F(LoaderCache, ThatIsCutOffIsReadAsFarAsItGoes) {
  add_library("a", "libm.so.6");
  const fs::path cache = make_cache();
  const std::string whole = read_small_file(cache, std::size_t{1} << 24).value();
  const std::size_t all = libraries_in_cache("libm.so.6", cache).size();
  for (std::size_t length = 0; length < whole.size(); length += 1 + length / 16) {
    std::ofstream(cache, std::ios::trunc) << whole.substr(0, length);
    EXPECT_LE(libraries_in_cache("libm.so.6", cache).size(), all);
  }
}

}  // namespace
}  // namespace gpumem
