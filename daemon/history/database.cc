#include "daemon/history/database.h"

namespace gpumem::history {
namespace {

constexpr int kBusyMs = 2000;             // another connection's transaction takes milliseconds
constexpr int kStepsBetweenLooks = 1000;  // at the clock, for limit_time()

Code code_of(int number) {
  switch (number & 0xff) {
    case SQLITE_FULL: return Code::kResourceExhausted;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return Code::kFailedPrecondition;
    case SQLITE_INTERRUPT: return Code::kDeadlineExceeded;
    case SQLITE_CANTOPEN: return Code::kNotFound;
    default: return Code::kInternal;
  }
}

Error error_of(sqlite3* connection) {
  return {code_of(sqlite3_extended_errcode(connection)), sqlite3_errmsg(connection)};
}

}  // namespace

Result<bool> Statement::step() {
  const int done = sqlite3_step(statement_.get());
  if (done == SQLITE_ROW) return true;
  if (done == SQLITE_DONE) return false;
  Error error = error_of(sqlite3_db_handle(statement_.get()));
  sqlite3_reset(statement_.get());
  return error;
}

Result<void> Statement::for_each(const std::function<Result<void>()>& take) {
  for (;;) {
    const auto row = step();
    if (!row) return row.error();
    if (!*row) break;
    if (auto taken = take(); !taken) return taken;
  }
  sqlite3_reset(statement_.get());
  return {};
}

std::string Statement::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  return bytes == nullptr ? std::string() : bytes;
}

void Statement::bind(int place, std::string_view value) {
  sqlite3_bind_text64(statement_.get(), place, value.data(), value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
}

Result<Database> Database::open(const std::filesystem::path& file, Mode mode) {
  int flags = mode == Mode::kRead ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
  if (mode == Mode::kCreate) flags |= SQLITE_OPEN_CREATE;
  sqlite3* connection = nullptr;
  const int opened = sqlite3_open_v2(file.c_str(), &connection, flags, nullptr);
  Database database;
  database.connection_.reset(connection);
  if (opened != SQLITE_OK) return error_of(connection).in(file.string());
  sqlite3_busy_timeout(connection, kBusyMs);
  return database;
}

Result<void> Database::run(const std::string& statements) {
  if (sqlite3_exec(connection_.get(), statements.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return error_of(connection_.get());
}

Result<Statement> Database::prepare(const std::string& statement) {
  sqlite3_stmt* prepared = nullptr;
  const int done = sqlite3_prepare_v2(connection_.get(), statement.c_str(), -1, &prepared, nullptr);
  if (done != SQLITE_OK) return error_of(connection_.get());
  return Statement(prepared);
}

void Database::limit_time(std::chrono::milliseconds time) {
  end_ = std::make_unique<std::chrono::steady_clock::time_point>(std::chrono::steady_clock::now() + time);
  const auto is_over = [](void* end) {
    return std::chrono::steady_clock::now() > *static_cast<std::chrono::steady_clock::time_point*>(end) ? 1
                                                                                                        : 0;
  };
  sqlite3_progress_handler(connection_.get(), kStepsBetweenLooks, is_over, end_.get());
}

}  // namespace gpumem::history
