#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "daemon/history/database.h"
#include "daemon/history/viewer.h"
#include "gpumem/result.h"

namespace gpumem::history {

using Json = nlohmann::json;

/// The columns that rows are summed up by. The last two have pods of Kubernetes alone.
enum class By { kTenant, kUser, kDevice, kDay, kNamespace, kPod };

struct Question {
  std::int64_t since = 0;  ///< seconds since 1970
  std::int64_t until = 0;
  std::vector<By> by;
};

inline constexpr std::size_t kMostRows = 10'000;
inline constexpr std::size_t kMostEnds = 1'000;

/// The amounts between the two times: as exactly as rows are kept, and days are of UTC. A tenant has what the
/// tenants below it have used. Sums that name neither tenants nor users are of the devices as a whole, or of
/// the viewer's own tenants. Sums by user have the tenants that are one user's.
/// `since`, `until`  in the answer are the times that the rows stand for.
/// Errors  kResourceExhausted: more than kMostRows; kDeadlineExceeded: takes too long; kNotFound: there is no
///         store; as Statement's.   Blocks  2 s at most.
Result<Json> report(const std::filesystem::path& file, const Question& question, const Viewer& viewer);

/// Takes the user's rows from the number, which another person gets: administrators alone see them, and their
/// tenants have the date behind their names. How many there are.   Errors  as report().
Result<std::int64_t> forget(const std::filesystem::path& file, std::uint32_t uid, std::int64_t now);

// For other answers.

/// Has `answer` ask the store, with words for the errors that people see.
Result<Json> answer_from(const std::filesystem::path& file,
                         const std::function<Result<Json>(Database& database)>& answer);
std::string date_of(std::int64_t seconds);
Error too_many_rows();

}  // namespace gpumem::history
