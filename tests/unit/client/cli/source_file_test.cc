// The files that regions are published from, which others may change meanwhile.
#include "client/cli/regions/source_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace gpumem::cli {
namespace {

std::string read_all(SourceFile& source) {
  std::string all(source.size(), '\0');
  for (std::size_t done = 0; done < all.size();) {
    const auto count = source.read(std::span(all).subspan(done));
    if (!count) return count.error().message;
    done += *count;
  }
  return all;
}

struct SourceFileTest : testing::Test {
  SourceFileTest() { std::filesystem::create_directory(folder_); }
  ~SourceFileTest() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  void replace(const std::string& bytes) const {
    std::ofstream(folder_ / "new", std::ios::binary) << bytes;
    std::filesystem::rename(folder_ / "new", path_);
  }
  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("source-file-" + std::to_string(::getpid()));
  const std::filesystem::path path_ = folder_ / "file";
};

TEST_F(SourceFileTest, AReplacedFileIsReadAsItWasOpened) {
  write("first");
  SourceFile source(path_);
  ASSERT_TRUE(source.open());
  replace("another");
  EXPECT_EQ(read_all(source), "first");
  EXPECT_TRUE(source.check());
}

TEST_F(SourceFileTest, AChangedFileIsRefused) {
  write("first");
  SourceFile source(path_);
  ASSERT_TRUE(source.open());
  write("first, and more");
  EXPECT_EQ(read_all(source), "first");
  EXPECT_EQ(source.check().error().code, Code::kAborted);
}

TEST_F(SourceFileTest, AShortenedFileSaysSo) {
  write("first");
  SourceFile source(path_);
  ASSERT_TRUE(source.open());
  write("");
  EXPECT_EQ(read_all(source), path_.string() + " ends at byte 0 of 5: it became shorter");
}

}  // namespace
}  // namespace gpumem::cli
