#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpumem/v1/broker.pb.h"

// The memory of a device as a sum. Arithmetic alone: nothing is asked or printed here.

namespace gpumem::cli {

/// The broker's books at one moment.
struct Ledger {
  v1::GetStatusResponse status;
  v1::ListTenantsResponse tenants;
  v1::ListSessionsResponse sessions;
};

/// An amount, and the amounts that it is the sum of. Parts that are not told count as zero.
struct Line {
  std::string key{};                    ///< `lent`, `tenant`, `process`: stable
  std::string subject{};                ///< which tenant, process or session; as others chose it
  std::string name{};                   ///< for people: nothing in it harms a terminal
  std::optional<std::int64_t> bytes{};  ///< nothing: not told
  std::int64_t moved = 0;               ///< the change from the ledger before the look to the one after it
  std::vector<Line> parts{};

  void add(Line part) { parts.push_back(std::move(part)); }
  /// The part with this key, which has no subject. It is there.
  const Line& part(const std::string& of_key) const;
};
/// A line of `bytes` as the wire has them; more than half of all numbers are negative amounts.
Line line_of(const char* key, std::string name, std::optional<std::uint64_t> bytes);

/// The sum of one device: `total` = free + driver_reserved + used, and `used` in all its parts. Of the host
/// store: `total` = free + others + used.
struct Account {
  std::string device;  ///< UUID
  std::string seen;    ///< when the broker looked at the driver, RFC 3339; empty: never
  std::string problem;
  Line sum{};
  std::uint64_t moving = 0;            ///< v1::Accounting::moving
  bool is_settled = false;             ///< nothing moved from the first ledger to the second
  std::uint64_t reserved_by_jobs = 0;  ///< of the idle part of the pool
  std::uint64_t estimated = 0;         ///< of `contexts`: charged, because the driver does not tell
};

/// The look at the host store, which has no driver: the broker's books, and the memory of the machine.
/// Nothing: the broker has no store.
/// `meminfo`  the text of /proc/meminfo; without its figures total and free are not told.
std::optional<v1::Reconciliation> look_at_host(const Ledger& ledger, std::string_view meminfo);

/// The sum of the device that `look` is of, with the ledgers before and after that look. All amounts are
/// `after`'s and the look's; Line::moved compares it with `before`.
///
/// The idle part of the pool is what the extents that the look counted have besides charges. It and
/// `unexplained` are differences, and are negative where the figures do not agree.
Account account_of(const Ledger& before, const v1::Reconciliation& look, const Ledger& after);

}  // namespace gpumem::cli
