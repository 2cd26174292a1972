#pragma once
#include <spdlog/spdlog.h>

#include <chrono>
#include <string>
#include <string_view>

#include "gpumem/result.h"

namespace gpumem {

enum class LogFormat {
  kText,  ///< time, level, words; in the journal, which has times itself, sd-daemon(3)'s level prefix
  kJson,  ///< one JSON object a line: for a collector
};

/// The log's options on the command line of a program.
struct LogOptions {
  LogFormat format = LogFormat::kText;
  std::string level = "info";
};

/// Sends the process's log to standard error in `format`, from `level` (trace ... critical, off) on. Logging
/// never waits for whoever reads it: see LineWriter.
/// Errors  kInvalidArgument: no such level.
Result<void> start_log(LogFormat format, std::string_view level);

/// Waits until what was logged has been written, for `patience` at most; whether it has. Blocks.
bool flush_log(std::chrono::milliseconds patience);

}  // namespace gpumem
