#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gpumem/result.h"

namespace gpumem::history {

using Json = nlohmann::json;

/// A user who asks, and the rows that this user may see.
struct Viewer {
  bool all = false;
  std::uint32_t uid = 0;  ///< else those of this user, of times when the number was its tenant's
};

/// The columns that rows are summed up by.
enum class By { kTenant, kUser, kDevice, kDay };

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

}  // namespace gpumem::history
