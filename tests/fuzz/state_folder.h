#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/fuzz/require.h"

namespace gpumem::fuzz {

/// A state folder in memory where there is such a file system: what is tested waits for the disk at every
/// step.
class StateFolder {
 public:
  StateFolder() {
    const std::filesystem::path memory = "/dev/shm";
    std::error_code unknown;
    const auto parent =
        std::filesystem::is_directory(memory, unknown) ? memory : std::filesystem::temp_directory_path();
    std::string name = (parent / "gpumem-state-fuzz-XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr, "a folder can be made");
    path_ = name;
  }
  ~StateFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string read(const char* name) const {
    std::ifstream file(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const char* name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace gpumem::fuzz
