#pragma once
#include <gtest/gtest.h>

#include "daemon/history/report.h"
#include "daemon/history/sample.h"
#include "daemon/history/store.h"
#include "tests/support/temporary_folder.h"

namespace gpumem::history {

inline constexpr std::int64_t kMonday = 1'793'577'600;  // 2026-11-02T00:00:00Z
inline constexpr double kGiB = 1 << 30;
inline constexpr std::uint64_t kRoom = 512ULL << 20;  ///< of a store

/// An account that has lent `lent` since `began` seconds after the start of the machine.
inline Account account(const std::string& tenant, std::optional<std::uint32_t> uid, double lent,
                       std::int64_t began = 0) {
  return {{tenant, "GPU-1"}, uid, std::chrono::seconds(began), {lent}};
}

/// Taken `second` seconds after Monday began, and as long after the start of the machine `boot`.
inline Sample sample_at(std::int64_t second, std::vector<Account> accounts,
                        const std::string& boot = "boot") {
  return {.boot = boot,
          .steady = std::chrono::seconds(second),
          .time = kMonday + second,
          .accounts = std::move(accounts)};
}

/// An event of `tenant` and its user, `second` seconds after Monday began.
inline Event event(std::int64_t second, const std::string& tenant, std::optional<std::uint32_t> uid,
                   Json body = {}) {
  body["tenant"] = tenant;
  if (uid) body["uid"] = *uid;
  return {(kMonday + second) * 1'000'000, tenant, uid, body.dump()};
}

/// The answer for the viewer, by default an administrator.
inline Json shown(const std::filesystem::path& file, const Question& question,
                  const Viewer& viewer = {true, 0}) {
  auto answer = report(file, question, viewer);
  EXPECT_TRUE(answer) << answer.error().message;
  return answer ? *answer : Json();
}

/// The sum of `name` over the rows of `tenant`.
inline double sum(const Json& answer, const std::string& tenant, const std::string& name = "lent") {
  double all = 0;
  for (const Json& row : answer["rows"])
    if (row.value("tenant", Json()) == (tenant.empty() ? Json() : Json(tenant)))
      all += row[name].get<double>();
  return all;
}

inline Question by(std::vector<By> columns, std::int64_t since = 0, std::int64_t until = 2 * kMonday) {
  return {since, until, std::move(columns)};
}

inline void add(Store& store, const Sample& sample) {
  const auto added = store.add(sample);
  ASSERT_TRUE(added) << added.error().message;
}

}  // namespace gpumem::history
