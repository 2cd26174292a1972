#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "daemon/history/database.h"
#include "gpumem/result.h"

namespace gpumem::history {

using Json = nlohmann::json;

/// The columns that rows are summed up by. The last two have pods of Kubernetes alone.
enum class By { kTenant, kUser, kDevice, kDay, kNamespace, kPod };
struct Column {
  By by;
  const char* word;   ///< of a request
  const char* field;  ///< of the answer's rows
  const char* sql;
};
inline constexpr std::array<Column, 6> kSumColumns{
    {{By::kTenant, "tenant", "tenant", "tenant"},
     {By::kUser, "user", "uid", "uid"},
     {By::kDevice, "device", "device", "device"},
     {By::kDay, "day", "day", "time/86400*86400"},
     {By::kNamespace, "namespace", "namespace",
      "substr(tenant,instr(tenant,' ')+1,instr(tenant,'/')-instr(tenant,' ')-1)"},
     {By::kPod, "pod", "pod", "substr(tenant,5)"}}};

/// A user who asks, and the rows that this user may see.
struct Viewer {
  bool all = false;
  std::uint32_t uid = 0;  ///< else those of this user, of times when the number was its tenant's
  /// And of this tenant, which is a group's, from the user's first day on. Empty: the user is no member of
  /// one.
  std::string tenant{};
};

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

/// The condition of SQL for the rows that the viewer may see, by their columns `uid`, `tenant` and `time`, of
/// which a second has `unit`. The first parameter of the statement is to be the viewer's tenant.
std::string rows_for(const Viewer& viewer, const std::string& unit = "1");
/// As rows_for(), without those of the tenant.
std::string own_rows_for(const Viewer& viewer);
/// Has `answer` ask the store, with words for the errors that people see.
Result<Json> answer_from(const std::filesystem::path& file,
                         const std::function<Result<Json>(Database& database)>& answer);
std::string date_of(std::int64_t seconds);
/// What `shown` makes of each row.   Errors  kResourceExhausted: more than kMostRows; as Statement's.
Result<Json> list_of(Statement& rows, const std::function<Json(const Statement& row)>& shown);

}  // namespace gpumem::history
