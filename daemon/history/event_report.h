#pragma once
#include <cstdint>
#include <filesystem>

#include "daemon/history/report.h"

namespace gpumem::history {

// Answers of what happened. Errors and time as report().

/// The events between the two times in their order, kMostRows at most: those behind the one with the number
/// `after`. If there are more, the answer has the number of its last as `after`.
Result<Json> events(const std::filesystem::path& file, const Question& question, std::int64_t after,
                    const Viewer& viewer);

/// What kind of thing is over.
enum class Over { kJobs, kSessions };
/// The jobs, or sessions, that ended between the two times, in the order of their ends. Members of a tenant
/// see their own.
Result<Json> closed(const std::filesystem::path& file, const Question& question, Over what,
                    const Viewer& viewer);

}  // namespace gpumem::history
