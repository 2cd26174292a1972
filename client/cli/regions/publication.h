#pragma once
#include <chrono>
#include <filesystem>
#include <string>

#include "gpumem/result.h"

namespace gpumem::cli {

struct PublicationOptions {
  std::filesystem::path runtime_folder;
  std::string name;
  std::string sharing = "private";  ///< private, group, public, or tenants and users with commas between them
  std::string device;               ///< as find_device(); empty: the first
  std::chrono::milliseconds life{0};    ///< zero: until it is interrupted
  bool keep = false;                    ///< leaves it behind at once
  std::chrono::milliseconds linger{0};  ///< of a kept one: so long after the last process; zero: for ever
  bool seal = false;                    ///< nobody writes to it from now on
  std::chrono::milliseconds wait{0};    ///< for memory that others hold
  bool json = false;
};

/// Before anything is loaded; the broker decides.   Errors  kInvalidArgument: no region can have this name.
Result<void> check_region_name(const std::string& name);

/// Whether the name ends with .safetensors.
bool is_safetensors(const std::filesystem::path& path);

/// `gpumem publish`: loads a file into device memory, through one buffer, and publishes it. Keeps it until it
/// is interrupted or its life is over; or leaves it behind. Python publishes a file of safetensors as arrays,
/// in place of this program; `raw` takes it for any other. `options.name`  empty: the file's.
/// Answers the exit status.
int publish_file(PublicationOptions options, const std::filesystem::path& file, bool raw);

}  // namespace gpumem::cli
