#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/text/printable.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"

namespace gpumem::cli {
namespace {

constexpr double kGiBHour = double{1 << 30} * 3600;
constexpr double kMostSeconds = 1e12;

std::string fixed(double value, int decimals) {
  std::array<char, 512> text{};  // of the largest, too
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, decimals);
  return {text.data(), end.ptr};
}

std::string gib_hours(double byte_seconds) { return fixed(byte_seconds / kGiBHour, 2); }

std::string name_of(const v1::Account& account) {
  return account.tenant().empty() ? "(all)" : tenant_text(account.tenant());
}

constexpr std::array<const char*, 6> kAmountNames{"lent",    "returning", "reserved",
                                                  "outside", "kept",      "waiting"};
constexpr std::array<const char*, 3> kCountNames{"denied", "ended", "peak"};

// The columns of the history's rows that are no amounts, with their titles. `least`  as Table::Column.
struct HistoryColumn {
  const char* name;
  const char* title;
  std::size_t least = 0;
};
constexpr std::array<HistoryColumn, 6> kHistoryColumns{{{"day", "DAY"},
                                                        {"tenant", "TENANT", 12},
                                                        {"namespace", "NAMESPACE", 8},
                                                        {"pod", "POD", 8},
                                                        {"uid", "USER", 8},
                                                        {"device", "DEVICE"}}};

nlohmann::json field(const nlohmann::json& row, const std::string& name) {
  return row.is_object() ? row.value(name, nlohmann::json()) : nlohmann::json();
}

nlohmann::json list_in(const nlohmann::json& answer, const std::string& name) {
  const nlohmann::json list = field(answer, name);
  return list.is_array() ? list : nlohmann::json::array();
}

std::vector<HistoryColumn> columns_of(const nlohmann::json& rows) {
  std::vector<HistoryColumn> columns;
  for (const HistoryColumn& one : kHistoryColumns)
    if (!rows.empty() && rows[0].contains(one.name)) columns.push_back(one);
  return columns;
}

std::string history_cell(const nlohmann::json& row, const std::string& name, const Layout& layout) {
  if (name == "uid") {
    const std::uint64_t uid = whole_in(row, "uid");
    return std::in_range<std::uint32_t>(uid) ? user_name(static_cast<std::uint32_t>(uid)) : "";
  }
  const std::string text = text_in(row, name);
  if (name == "device") return layout.device(text);
  if (name == "tenant") return text.empty() ? "(all)" : tenant_text(text);
  return printable(text);
}

// Administrators see all rows, other users some of them.
const char* seen() { return ::geteuid() == 0 ? "" : "that you may see "; }

// The name of the list of an answer about jobs or sessions; null: it is about sums.
const char* closed_list_of(const nlohmann::json& answer) {
  for (const char* name : {"jobs", "sessions"})
    if (answer.contains(name)) return name;
  return nullptr;
}

std::string closed_text(const nlohmann::json& answer, const std::string& list, const Layout& layout) {
  const nlohmann::json rows = list_in(answer, list);
  if (rows.empty()) return "no " + list + " " + seen() + "ended in that time\n";
  constexpr auto kRight = Table::Align::kRight;
  const bool is_jobs = list == "jobs";
  Table table({{.title = "ENDED"},
               {.title = "LASTED", .align = kRight, .rank = 3},
               {.title = "TENANT", .rank = 1, .least = 12},
               {.title = is_jobs ? "JOB" : "SESSION", .align = kRight},
               {.title = "PID", .align = kRight, .usual = "0", .rank = 6},
               {.title = is_jobs ? "NAME" : "COMMAND", .least = 8},
               {.title = "GIB-HOURS", .align = kRight},
               {.title = "PEAK", .align = kRight, .rank = 2},
               {.title = "WAITED", .align = kRight, .usual = "0ms", .rank = 5},
               {.title = "DENIED", .align = kRight, .usual = "0", .rank = 4},
               {.title = "WHY", .usual = "-", .rank = 7}});
  for (const nlohmann::json& row : rows) {
    const auto ended = parse_rfc3339(text_in(row, "ended"));
    table.add({text_in(row, "ended"), age_text(text_in(row, "began"), ended.value_or(WallTime())),
               tenant_text(text_in(row, "tenant")), fixed(number_in(row, is_jobs ? "job" : "session"), 0),
               fixed(number_in(row, "pid"), 0), printable(text_in(row, "name")),
               gib_hours(number_in(row, "charged")), size_text(whole_in(row, "peak")),
               span_text(std::chrono::milliseconds(static_cast<std::int64_t>(
                   std::clamp(number_in(row, "waited"), 0.0, kMostSeconds) * 1000))),
               fixed(number_in(row, "denied"), 0), printable(text_in(row, "words"))});
  }
  return table.text(layout);
}

std::string csv_cell(const nlohmann::json& row, const char* name) {
  const nlohmann::json value = field(row, name);
  return (value.is_number() ? value.dump() : csv_text(printable(text_in(row, name)))) + ',';
}

std::string closed_csv(const nlohmann::json& answer, const std::string& list) {
  constexpr std::array kNames{"ended", "began",   "tenant", "uid",    "job",    "session", "pid",
                              "name",  "charged", "peak",   "waited", "denied", "words"};
  std::string csv;
  for (const char* name : kNames) csv += std::string(name) + ',';
  csv.back() = '\n';
  for (const nlohmann::json& row : list_in(answer, list)) {
    for (const char* name : kNames) csv += csv_cell(row, name);
    csv.back() = '\n';
  }
  return csv;
}

}  // namespace

double account_charge(const v1::Account& account) {
  return account.lent() + account.returning() + account.reserved() + account.outside();
}

double number_in(const nlohmann::json& row, const std::string& name) {
  const nlohmann::json value = field(row, name);
  return value.is_number() ? value.get<double>() : 0;
}

std::uint64_t whole_in(const nlohmann::json& row, const std::string& name) {
  const nlohmann::json value = field(row, name);
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  return value.is_number_integer()
             ? static_cast<std::uint64_t>(std::max<std::int64_t>(value.get<std::int64_t>(), 0))
             : 0;
}

std::string text_in(const nlohmann::json& row, const std::string& name) {
  const nlohmann::json value = field(row, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

double account_charge(const nlohmann::json& row) {
  return number_in(row, "lent") + number_in(row, "returning") + number_in(row, "reserved") +
         number_in(row, "outside");
}

std::string accounts_text(const v1::ListAccountsResponse& accounts, WallTime now, const Layout& layout) {
  if (accounts.accounts().empty()) return "no accounts\n";
  constexpr auto kRight = Table::Align::kRight;
  Table table({{.title = "TENANT", .least = 20},
               {.title = "DEVICE"},
               {.title = "GIB-HOURS", .align = kRight},
               {.title = "UNUSED", .align = kRight, .usual = "0.00", .rank = 3},
               {.title = "WAITED FOR", .align = kRight, .usual = "0.00", .rank = 1},
               {.title = "FOR", .align = kRight, .rank = 2}});
  for (const v1::Account& account : accounts.accounts())
    table.add({name_of(account), layout.device(account.device()), gib_hours(account_charge(account)),
               gib_hours(account.kept()), gib_hours(account.waiting()), age_text(account.since(), now)});
  return table.text(layout);
}

Json accounts_json(const v1::ListAccountsResponse& accounts) {
  Json list = Json::array();
  for (const v1::Account& account : accounts.accounts()) {
    list.push_back({{"tenant", account.tenant().empty() ? Json() : Json(account.tenant())},
                    {"device", account.device()},
                    {"since", account.since()},
                    {"lent", account.lent()},
                    {"returning", account.returning()},
                    {"reserved", account.reserved()},
                    {"outside", account.outside()},
                    {"kept", account.kept()},
                    {"waiting", account.waiting()}});
  }
  return {{"accounts", std::move(list)}};
}

std::string accounts_csv(const v1::ListAccountsResponse& accounts) {
  std::string csv = "tenant,device,since,lent,returning,reserved,outside,kept,waiting\n";
  for (const v1::Account& account : accounts.accounts()) {
    csv += csv_text(printable(account.tenant())) + ',' + csv_text(printable(account.device())) + ',' +
           csv_text(printable(account.since()));
    for (const double amount : {account.lent(), account.returning(), account.reserved(), account.outside(),
                                account.kept(), account.waiting()})
      csv += ',' + fixed(amount, 0);
    csv += '\n';
  }
  return csv;
}

void sort_by_place(nlohmann::json& answer, std::vector<std::string> by, const Layout& layout) {
  const auto rows = answer.find("rows");
  if (rows == answer.end() || !rows->is_array()) return;
  if (by.empty()) by = {"tenant", "device"};
  const auto place = [&](const nlohmann::json& device) {
    return std::ranges::find(layout.devices, device.is_string() ? device.get<std::string>() : "") -
           layout.devices.begin();
  };
  std::ranges::stable_sort(rows->get_ref<nlohmann::json::array_t&>(),
                           [&](const nlohmann::json& a, const nlohmann::json& b) {
                             for (const std::string& name : by) {
                               const std::string key = name == "user" ? "uid" : name;
                               const nlohmann::json first = field(a, key), second = field(b, key);
                               if (name == "device" && place(first) != place(second))
                                 return place(first) < place(second);
                               if (first != second) return first < second;
                             }
                             return false;
                           });
}

std::string history_text(const nlohmann::json& answer, const Layout& layout) {
  if (const char* const list = closed_list_of(answer)) return closed_text(answer, list, layout);
  const nlohmann::json rows = list_in(answer, "rows");
  if (rows.empty()) return std::string("nothing ") + seen() + "is recorded of that time\n";
  constexpr auto kRight = Table::Align::kRight;
  const auto names = columns_of(rows);
  std::vector<Table::Column> columns;
  columns.reserve(names.size());
  for (const HistoryColumn& one : names) columns.push_back({.title = one.title, .least = one.least});
  columns.insert(columns.end(), {{.title = "GIB-HOURS", .align = kRight},
                                 {.title = "UNUSED", .align = kRight, .usual = "0.00", .rank = 5},
                                 {.title = "WAITED FOR", .align = kRight, .usual = "0.00", .rank = 3},
                                 {.title = "DENIED", .align = kRight, .usual = "0", .rank = 2},
                                 {.title = "ENDED", .align = kRight, .usual = "0", .rank = 4},
                                 {.title = "PEAK", .align = kRight, .usual = "0B", .rank = 1}});
  Table table(std::move(columns));
  for (const nlohmann::json& row : rows) {
    std::vector<std::string> cells;
    cells.reserve(names.size());
    for (const HistoryColumn& one : names) cells.push_back(history_cell(row, one.name, layout));
    cells.insert(cells.end(), {gib_hours(account_charge(row)), gib_hours(number_in(row, "kept")),
                               gib_hours(number_in(row, "waiting")), fixed(number_in(row, "denied"), 0),
                               fixed(number_in(row, "ended"), 0), size_text(whole_in(row, "peak"))});
    table.add(std::move(cells));
  }
  return table.text(layout);
}

std::string history_csv(const nlohmann::json& answer) {
  if (const char* const list = closed_list_of(answer)) return closed_csv(answer, list);
  const nlohmann::json rows = list_in(answer, "rows");
  const auto names = columns_of(rows);
  std::string csv;
  for (const HistoryColumn& one : names) csv += std::string(one.name) + ',';
  csv += "lent,returning,reserved,outside,kept,waiting,denied,ended,peak\n";
  for (const nlohmann::json& row : rows) {
    for (const HistoryColumn& one : names) csv += csv_cell(row, one.name);
    for (const char* name : kAmountNames) csv += fixed(number_in(row, name), 0) + ',';
    for (const char* name : kCountNames) csv += fixed(number_in(row, name), 0) + ',';
    csv.back() = '\n';
  }
  return csv;
}

}  // namespace gpumem::cli
