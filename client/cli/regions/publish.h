#pragma once
#include <chrono>
#include <filesystem>
#include <string>

namespace gpumem::cli {

struct PublishFileOptions {
  std::filesystem::path runtime_folder;
  std::filesystem::path file;
  std::string name;                     ///< empty: the file's
  std::string sharing;                  ///< private, group, public, or tenants with commas between them
  std::string device;                   ///< as find_device(); empty: the first
  std::chrono::milliseconds life{0};    ///< zero: until it is interrupted
  bool keep = false;                    ///< leaves it behind at once
  std::chrono::milliseconds linger{0};  ///< of a kept one: so long after the last process; zero: for ever
  std::chrono::milliseconds wait{0};    ///< for memory that others hold
  bool json = false;
};

/// `gpumem publish`: loads a file into device memory, publishes it, and keeps it until it is interrupted or
/// its life is over; or leaves it behind. Answers the exit status.
int publish_file(const PublishFileOptions& options);

}  // namespace gpumem::cli
