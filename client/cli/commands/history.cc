#include "client/cli/commands/history.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <iostream>
#include <set>
#include <string_view>

#include "client/cli/commands/commands.h"
#include "client/cli/monitor/history_client.h"
#include "client/cli/views/views.h"

namespace gpumem::cli {
namespace {

std::string seconds_of(const std::string& text) {
  const auto instant = instant_of(text, std::chrono::system_clock::now());
  if (!instant) return {};  // not after the command line was read
  return std::to_string(
      std::chrono::duration_cast<std::chrono::seconds>(instant->time_since_epoch()).count());
}

std::string target_of(const HistoryChoice& choice) {
  if (choice.forget) return "/v1/forget?uid=" + std::to_string(*choice.forget);
  std::string query;
  const auto add = [&query](const char* name, const std::string& value) {
    if (!value.empty()) query += std::string(query.empty() ? "?" : "&") + name + "=" + value;
  };
  if (!choice.since.empty()) add("since", seconds_of(choice.since));
  if (!choice.until.empty()) add("until", seconds_of(choice.until));
  std::string columns;
  for (const std::string& one : choice.by) columns += (columns.empty() ? "" : ",") + one;
  if (columns == "job" || columns == "session") return "/v1/" + columns + "s" + query;
  add("by", columns);
  return "/v1/usage" + query;
}

void print_table(const HistoryOptions& options, nlohmann::json answer) {
  const auto monitor = Monitor::connect(options.runtime_folder);
  const bool is_long = options.flags.is_long;
  const Layout layout = monitor ? layout_for(*monitor, is_long) : Layout::of_output(is_long);
  sort_by_place(answer, options.choice.by, layout);
  std::cout << history_text(answer, layout);
}

void print_answer(const HistoryOptions& options, const nlohmann::json& answer) {
  if (options.csv) {
    std::cout << history_csv(answer);
  } else if (options.flags.json) {
    std::cout << answer.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    print_table(options, answer);
  }
  std::cout << std::flush;
  if (const auto problem = answer.find("problem"); problem != answer.end() && problem->is_string())
    std::cerr << "gpumem: nothing is recorded at present: " << printable(problem->get<std::string>()) << "\n";
}

}  // namespace

void add_instant(CLI::App& command, const char* option, std::string& text, const char* about) {
  command.add_option(option, text, about)
      ->check([](const std::string& given) {
        const auto known = instant_of(given, std::chrono::system_clock::now());
        return known ? std::string() : known.error().message;
      })
      ->type_name("TIME");
}

void check_span(const std::string& since, const std::string& until) {
  const WallTime now = std::chrono::system_clock::now();
  const auto begin = since.empty() ? Result<WallTime>(WallTime()) : instant_of(since, now);
  const auto end = until.empty() ? Result<WallTime>(WallTime::max()) : instant_of(until, now);
  if (begin && *begin > now) throw CLI::ValidationError("--since", "'" + since + "' lies in the future");
  if (begin && end && *begin >= *end)
    throw CLI::ValidationError("--since", "'" + since + "' is not before --until '" + until + "'");
}

void check_choice(const HistoryChoice& choice) {
  check_span(choice.since, choice.until);
  const auto is_alone = [](const std::string& one) { return one == "job" || one == "session"; };
  if (choice.by.size() > 1 && std::ranges::any_of(choice.by, is_alone))
    throw CLI::ValidationError("--by", "job and session go with no other column");
  if (std::set(choice.by.begin(), choice.by.end()).size() != choice.by.size())
    throw CLI::ValidationError("--by", "a column is named twice");
}

void add_history_options(CLI::App& command, HistoryChoice& choice) {
  add_instant(command, "--since", choice.since,
              "From the history: memory used since then (2026-11-01, monday, yesterday, 7d, RFC 3339)");
  add_instant(command, "--until", choice.until, "From the history: memory used before that");
  command
      .add_option(
          "--by", choice.by,
          "From the history: sums by tenant, user, device, day, namespace, pod, with commas; or each job "
          "or session that ended")
      ->delimiter(',')
      ->check(CLI::IsMember({"tenant", "user", "device", "day", "namespace", "pod", "job", "session"}))
      ->type_name("COLUMNS");
  command
      .add_option_function<std::string>(
          "--forget",
          [&choice](const std::string& text) {
            choice.forget = find_user(text);
            if (!choice.forget) throw CLI::ValidationError("--forget", "there is no user '" + text + "'");
          },
          "Take the history of this user, a name or a number, from the number before another person gets it")
      ->type_name("USER")
      ->check(refuse_unprintable)
      ->excludes("--since")
      ->excludes("--until")
      ->excludes("--by");
}

int run_history(const HistoryOptions& options) {
  const auto answer =
      ask_history(options.runtime_folder, options.choice.forget ? "POST" : "GET", target_of(options.choice));
  if (!answer && answer.error().code == Code::kNotFound && !options.choice.forget)
    return report({Code::kNotFound, answer.error().message +
                                        "; without --since, --until and --by, gpumem account shows what was "
                                        "used since the machine started"});
  if (!answer) return report(answer.error());
  if (options.choice.forget) {
    const std::uint64_t forgotten = whole_in(*answer, "forgotten");
    std::cout << "user " << user_name(*options.choice.forget);
    if (forgotten == 0)
      std::cout << " has no history\n";
    else
      std::cout << " has no history any more: " << counted(forgotten, "account") << "\n";
  } else {
    print_answer(options, *answer);
  }
  return std::cout ? 0 : 1;
}

}  // namespace gpumem::cli
