#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "client/cli/top/picture.h"
#include "client/cli/views/text.h"

namespace gpumem::cli::top {

/// A tenant, a job or a session, with what all below it have together.
struct Row {
  enum class Kind { kTenant, kJob, kSession };
  Kind kind = Kind::kTenant;
  std::string key{};         ///< names it from sample to sample
  std::vector<bool> more{};  ///< for each level above and its own, whether others follow on that level
  std::string name{};        ///< printable ASCII, as all text here
  std::string user{};
  std::string devices{};  ///< `0,1`
  std::string state{};    ///< empty: open
  std::uint64_t id = 0;   ///< of a job or a session
  std::int64_t pid = 0;
  std::uint32_t uid = 0;
  std::uint64_t charged = 0;
  std::uint64_t in_use = 0;
  std::uint64_t peak = 0;
  std::uint64_t asked = 0;
  std::uint64_t waiting = 0;                         ///< bytes
  std::uint64_t requests = 0;                        ///< that wait
  std::optional<std::chrono::milliseconds> waits{};  ///< the longest of those that are told of
  std::chrono::seconds age{};
  std::chrono::seconds quiet{};  ///< so long nothing about it has changed
  bool has_more = false;         ///< rows below it
  bool is_folded = false;
};

enum class Sort { kCharged, kInUse, kPeak, kAsked, kWaiting, kAge, kQuiet, kName };
inline constexpr std::array<const char*, 8> kSortNames{"charged", "in-use", "peak",  "asked",
                                                       "waiting", "age",    "quiet", "name"};

struct RowChoice {
  Sort sort = Sort::kCharged;
  bool is_flat = false;            ///< sessions alone
  bool has_empty = false;          ///< tenants that have nothing, too
  std::string filter{};            ///< rows with this in their text, and those above them; empty: all
  std::set<std::string> folded{};  ///< keys of rows, below which nothing is shown
};

struct Moment {
  Picture::Clock::time_point steady;
  WallTime wall;
};

/// The rows of the picture, each below the one that it belongs to. Rows side by side are sorted, the largest
/// first.
std::vector<Row> rows_of(const Picture& picture, const RowChoice& choice, const Moment& now);

/// Whether the text of the row has `words`, however they are written in large and small letters.
bool matches(const Row& row, const std::string& words);

/// The sessions that hold much memory and have not changed for long, the largest first, `most` of them.
std::vector<Row> quiet_sessions(const Picture& picture, std::size_t most, const Moment& now);

}  // namespace gpumem::cli::top
