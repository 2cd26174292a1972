#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem::client {

// Variables that `gpumem run` sets for its command, or a user. In a set-user-id program none of them counts.
// Errors of all: kInvalidArgument, with the variable's name: its value cannot be read.

/// GPUMEM_NAME: the label of sessions. Empty: none.
Result<std::string> label_of_environment();
/// GPUMEM_WAIT: how long to wait for memory that others hold. Nothing: it is not set.
Result<std::optional<std::chrono::milliseconds>> wait_of_environment();
/// GPUMEM_LIMIT: of this process on each device. Zero: it is not set.
Result<Bytes> limit_of_environment();
/// GPUMEM_JOB: the job that sessions join. Zero: none.
Result<std::uint64_t> job_of_environment();

/// The environment's defaults for a session whose caller says nothing.
struct SessionDefaults {
  std::string label;
  std::chrono::milliseconds wait{0};
  Bytes limit{};  ///< zero: none
  std::uint64_t job = 0;

  /// A variable whose value cannot be read does not count. Standard error says so, once for each variable.
  static SessionDefaults from_environment();
};

/// Says on standard error, once in the life of the process, that the session is not in the job of GPUMEM_JOB.
/// `limit`  GPUMEM_LIMIT; zero: it is not set.
void tell_of_missing_job(std::uint64_t job, Bytes limit);

}  // namespace gpumem::client
