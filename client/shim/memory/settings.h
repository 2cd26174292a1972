#pragma once
#include <chrono>
#include <filesystem>
#include <string>

#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem::shim {

/// The shim's settings, from the environment; `gpumem run` sets them.
struct Settings {
  Bytes limit{};                           ///< GPUMEM_LIMIT, of each device; zero: the tenant's
  std::chrono::milliseconds wait{30'000};  ///< GPUMEM_WAIT: for memory that others hold
  std::string name;                        ///< GPUMEM_NAME, for people
  bool optional = false;                   ///< GPUMEM_OPTIONAL=1: without a broker, do without
  std::filesystem::path account_folder;    ///< GPUMEM_ACCOUNT_FOLDER; empty: no account

  /// Errors  kInvalidArgument: a variable that says what cannot be read, by name.
  static Result<Settings> from_environment();
};

}  // namespace gpumem::shim
