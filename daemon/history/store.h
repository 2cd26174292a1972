#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/history/database.h"
#include "daemon/history/event_store.h"
#include "daemon/history/sample.h"
#include "gpumem/result.h"

namespace gpumem::history {

/// How finely rows are kept. Each resolution has a table of its own with the same columns.
struct Resolution {
  const char* table;
  std::int64_t seconds;  ///< that a row stands for
  std::int64_t kept;     ///< seconds that rows are kept for; 0: for ever
  const char* from;      ///< the name in `state` of the time from which on all rows are there; null: all
};
inline constexpr std::int64_t kDay = 86'400;
/// The last multiple of `step` up to `time`.
inline std::int64_t floor_to(std::int64_t time, std::int64_t step) { return time - time % step; }
inline constexpr std::array<Resolution, 3> kResolutions{{{"second", 1, 3600, "second_from"},
                                                         {"minute", 60, 90 * kDay, "minute_from"},
                                                         {"day", kDay, 0, nullptr}}};

/// The writing side of the store: adds up what accounts have counted since the sample before. A transaction
/// for each sample has the rows and the counters, so a process that dies loses nothing: the next sample
/// brings the difference. Errors  of all calls: as Statement's. kFailedPrecondition: the file is damaged
/// (set_aside()).
///         After an error, the store is of no use any more and holds what it held before.
class Store {
 public:
  /// `most_bytes`  rows of the finest resolution are dropped beyond it, the oldest first.
  /// Errors  kAborted: a newer version of the program has written the file.
  static Result<Store> open(const std::filesystem::path& file, std::uint64_t most_bytes);

  /// Writes nothing if nothing has changed. A sample from before the last one is added to rows that are
  /// there.
  Result<void> add(const Sample& sample);

  const EventPosition& position() const { return position_; }
  std::int64_t last_time() const { return last_time_; }  ///< of the latest row; 0: there is none

 private:
  /// What was counted of an account so far.
  struct Counter {
    std::string boot;
    std::chrono::nanoseconds seen{};  ///< when it was written last
    Amounts amounts{};
  };
  struct Row {
    std::int64_t time = 0;
    Key key;
    std::optional<std::uint32_t> uid{};
    Amounts amounts{};
    Counts counts{};
    std::uint64_t peak = 0;
  };

  explicit Store(Database database) : database_(std::move(database)) {}
  Result<void> prepare();
  Result<void> load();
  std::optional<Row> take(const Account& account, const Sample& sample,
                          std::map<Key, Counter>& changed) const;
  static std::vector<Row> event_rows(const Sample& sample);
  Result<void> write(const Sample& sample, const std::vector<Row>& rows,
                     const std::map<Key, Counter>& counters);
  Result<void> write_row(const Row& row);
  Result<void> write_counter(const Key& key, const Counter& counter);
  Result<std::int64_t> series_of(const Row& row);
  Result<void> set_state(const char* name, std::int64_t value);
  Result<std::int64_t> state(const char* name);
  Result<std::int64_t> used_bytes();
  Result<void> drop_before(const Resolution& resolution, std::int64_t time);
  Result<void> begin_at_latest(const Resolution& resolution, std::int64_t now);
  Result<std::int64_t> believed_time(const Sample& sample);
  Result<void> tidy(const Sample& sample);
  Result<void> make_room();

  Database database_;
  std::vector<Statement> statements_;  ///< by the numbers in store.cc
  EventStore events_;
  std::map<Key, Counter> counters_;
  EventPosition position_;
  std::int64_t last_time_ = 0;
  std::uint64_t most_bytes_ = 0;
  std::uint64_t added_ = 0;                              ///< samples
  std::optional<std::chrono::nanoseconds> off_since_{};  ///< the clock is off by more than a day
};

/// Renames the files of a damaged store, with the date. The new name. Errors  of renaming the first of them.
Result<std::filesystem::path> set_aside(const std::filesystem::path& file, std::int64_t now);

}  // namespace gpumem::history
