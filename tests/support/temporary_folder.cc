#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace gpumem::test {

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "gpumem-test-XXXXXX").string();
  EXPECT_NE(::mkdtemp(name.data()), nullptr) << name;
  path_ = name;
  std::filesystem::permissions(path_, std::filesystem::perms(0755));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_file(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

void write_file(const std::filesystem::path& file, const std::string& text) {
  std::ofstream stream(file, std::ios::trunc);
  stream << text;
  EXPECT_TRUE(stream.flush()) << file;
}

}  // namespace gpumem::test
