#pragma once
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "bench/must.h"

namespace gpumem::bench {

/// Owns a new folder, with a path short enough for sockets; it goes with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "gpumem-bench-XXXXXX").string();
    require(::mkdtemp(path.data()) != nullptr, "cannot make a folder", path);
    path_ = path;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace gpumem::bench
