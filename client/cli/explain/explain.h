#pragma once
#include <string>
#include <vector>

#include "client/cli/explain/account.h"
#include "client/cli/explain/program.h"
#include "client/cli/views/views.h"

namespace CLI {
class App;
}

// `gpumem explain`: where the memory of a device is, and how the figures of a program are related.

namespace gpumem::cli {

/// Adds the command. `runtime_dir`, `status`  are read and set when the command line has been parsed, and
/// outlive `app`.
void add_explain_command(CLI::App& app, const std::string& runtime_dir, int& status);

/// The sum as an indented list, and what its lines mean. `looks`  that were made.
std::string account_text(const Account& account, const v1::GetStatusResponse& status, int looks, WallTime now,
                         const Layout& layout);
Json account_json(const Account& account);

/// A process or job, and all that the command shows of it.
struct Program {
  Subject subject;
  std::vector<Member> members;
  std::vector<DeviceUse> uses;
  std::vector<Account> accounts;  ///< of all devices
  v1::GetStatusResponse status;
  v1::JobInfo job;  ///< of a job
};
std::string program_text(const Program& program, const Layout& layout);
Json program_json(const Program& program);

/// Lines of an indented list: names on the left, cut where they do not fit, and amounts on the right.
/// `with_moves`  a column has Line::moved.
std::string lines_text(const std::vector<Line>& lines, const Layout& layout, bool with_moves = false);
Json line_json(const Line& line);
/// `text` in lines of at most 80 letters.
std::string wrapped(const std::string& text);
/// An amount that may be negative, or not told.
std::string amount_text(std::optional<std::int64_t> bytes);

}  // namespace gpumem::cli
