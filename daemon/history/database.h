#pragma once
#include <sqlite3.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "gpumem/result.h"

namespace gpumem::history {

/// A prepared statement of a Database, which outlives it.
///
/// Errors of all calls: kResourceExhausted (the disk, or the file, is full), kFailedPrecondition (the file is
/// damaged), kDeadlineExceeded (see Database::limit_time()), kInternal (others). All have SQLite's words.
class Statement {
 public:
  /// Starts it anew with these values, in the order of its question marks.
  template <class... Values>
  Statement& with(const Values&... values) {
    sqlite3_reset(statement_.get());
    int place = 0;
    (bind(++place, values), ...);
    return *this;
  }
  /// Goes to the next row; false: there is none.
  Result<bool> step();
  /// Runs to its end; `take` takes each row, or ends it with an error.
  Result<void> for_each(const std::function<Result<void>()>& take);
  Result<void> finish() {
    return for_each([] { return Result<void>(); });
  }

  std::int64_t integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  double real(int column) const { return sqlite3_column_double(statement_.get(), column); }
  std::string text(int column) const;

 private:
  friend class Database;
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  void bind(int place, std::int64_t value) { sqlite3_bind_int64(statement_.get(), place, value); }
  void bind(int place, double value) { sqlite3_bind_double(statement_.get(), place, value); }
  void bind(int place, std::string_view value);

  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

/// A connection to a file of SQLite.   Threads  one at a time.
class Database {
 public:
  enum class Mode {
    kCreate,  ///< the file is made if it is missing
    kWrite,
    kRead,
  };

  /// Errors  as Statement's.
  static Result<Database> open(const std::filesystem::path& file, Mode mode);

  Result<void> run(const std::string& statements);
  Result<Statement> prepare(const std::string& statement);
  /// From now on, statements end with kDeadlineExceeded when the time is over.
  void limit_time(std::chrono::milliseconds time);
  std::int64_t last_row() const { return sqlite3_last_insert_rowid(connection_.get()); }
  /// Rows that the last statement has changed.
  std::int64_t changes() const { return sqlite3_changes64(connection_.get()); }

 private:
  struct Close {
    void operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }
  };
  std::unique_ptr<sqlite3, Close> connection_;
  std::unique_ptr<std::chrono::steady_clock::time_point> end_;
};

}  // namespace gpumem::history
