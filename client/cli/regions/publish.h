#pragma once
#include <chrono>
#include <filesystem>
#include <string>

namespace gpumem::cli {

struct PublishFileOptions {
  std::filesystem::path runtime_folder;
  std::filesystem::path file;
  std::string name;                   ///< empty: the file's
  std::string sharing;                ///< private, group, public, or tenants with commas between them
  std::string device;                 ///< as find_device(); empty: the first
  std::chrono::milliseconds life{0};  ///< zero: until it is interrupted
  std::chrono::milliseconds wait{0};  ///< for memory that others hold
  bool json = false;
};

/// `gpumem publish`: loads a file into device memory, publishes it, and keeps it until it is interrupted or
/// its life is over. Answers the exit status.
int publish_file(const PublishFileOptions& options);

}  // namespace gpumem::cli
