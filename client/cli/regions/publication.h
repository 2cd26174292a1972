#pragma once
#include <chrono>
#include <filesystem>
#include <string>

#include "client/cli/regions/region_source.h"

namespace gpumem::cli {

struct PublicationOptions {
  std::filesystem::path runtime_folder;
  std::string name;
  std::string sharing = "private";      ///< private, group, public, or tenants with commas between them
  std::string device;                   ///< as find_device(); empty: the first
  std::chrono::milliseconds life{0};    ///< zero: until it is interrupted
  bool keep = false;                    ///< leaves it behind at once
  std::chrono::milliseconds linger{0};  ///< of a kept one: so long after the last process; zero: for ever
  std::string charge = "publisher";     ///< or shared: those who map it pay parts
  bool seal = false;                    ///< nobody writes to it from now on
  std::chrono::milliseconds wait{0};    ///< for memory that others hold
  bool json = false;
};

/// Loads `source` into device memory, through one buffer, and publishes it. Keeps it until it is interrupted
/// or its life is over; or leaves it behind. Answers the exit status.
int publish_source(const PublicationOptions& options, RegionSource& source);

}  // namespace gpumem::cli
