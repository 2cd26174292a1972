#pragma once

#include <signal.h>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>

#include "base/system/unique_fd.h"
#include "client/cli/commands/usage.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/views/views.h"

// The commands of `gpumem`, except those of `run/`.
namespace CLI {
class App;
}

namespace gpumem::cli {

struct Style {
  bool json = false;
  bool is_long = false;
  bool now = false;  ///< have the broker ask the driver first, for listings that can be renewed
  SessionsChoice sessions{};
  bool csv = false;  ///< for Listing::has_csv
};

/// Of standard output, with the devices that the broker lends; with none if it does not answer.
Layout layout_for(const v1::GetStatusResponse& status, bool is_long);
Layout layout_for(const Monitor& monitor, bool is_long);

/// The tenant that `text` names: a tenant as it is; of a user's name, the tenant of the user's sessions, or
/// `uid:N`. Anything else as it is.
std::string find_tenant(const Monitor& monitor, const std::string& text);
/// As find_tenant(), of the broker of the folder; `text` as it is if that does not answer.
std::string find_tenant(const std::filesystem::path& runtime_folder, const std::string& text);

/// One of the commands that ask the Monitor service once and show the answer.
struct Listing {
  const char* name;
  const char* about;
  bool watchable;
  Result<std::string> (*show)(const Monitor& monitor, const Style& style);
  bool renewable = false;     ///< takes Style::now
  bool has_sessions = false;  ///< takes Style::sessions
  bool has_csv = false;
  bool has_history = false;  ///< takes the options of HistoryChoice
};

std::span<const Listing> listings();

class Interrupt;

/// Clears the terminal, if standard output is one.
void clear_screen();

struct ListingOptions {
  std::filesystem::path runtime_folder;
  Style style;
  std::optional<double> watch_seconds;  ///< show again and again, this far apart
};

struct ShowOptions {
  std::filesystem::path runtime_folder;
  std::optional<double> watch_seconds;   ///< show again and again, this far apart
  const Interrupt* interrupt = nullptr;  ///< ends it with status 0; null: signals end the program
};

/// Prints what `text_of` makes of the broker's answers, once or again and again. A broker that goes away
/// after the first time is waited for, and standard error says so once each time. Other errors are reported
/// and end it. Returns the command's exit status.   Blocks.
int show(const ShowOptions& options, const std::function<Result<std::string>(const Monitor&)>& text_of);

/// Runs `listing` and prints it, or its error. Answers the command's exit status.
int run_listing(const Listing& listing, const ListingOptions& options);

/// Prints `error` to standard error. Answers the exit status that goes with it.
int report(const Error& error);
/// As report(), of a session's call to the broker of the folder: 1, not 3, if a broker listens and has
/// refused.
int report(const Error& error, const std::filesystem::path& runtime_folder);
/// Prints `text` to standard output, or reports its error. Answers the exit status.
int print(const Result<std::string>& text);

struct EventsOptions {
  std::filesystem::path runtime_folder;
  std::string since;   ///< as instant_of() takes it; empty: from now on, or, not following, all that is kept
  std::string until;   ///< likewise; empty: goes on, or ends with what is kept
  std::string tenant;  ///< only of this one; empty: all that this user may see
  bool follow = true;
  TableFlags flags{};
};

/// `gpumem events`: a line for each event, until interrupted. Answers the command's exit status.
int run_events(const EventsOptions& options);

struct WhyOptions {
  std::filesystem::path runtime_folder;
  std::string subject;  ///< a session's number, or a tenant's name
  TableFlags flags{};
  std::optional<double> watch_seconds;  ///< show again and again, this far apart
};

/// `gpumem why`: how a tenant stands and what its requests wait for. Answers the command's exit status.
int run_why(const WhyOptions& options);

/// Adds the command `quota`: what tenants may have, and changes of it while the broker runs.
/// `runtime_dir`, `status`  are read and set when the command line has been parsed.
void add_quota_command(CLI::App& app, const std::string& runtime_dir, int& status);

/// Adds `reload`, `end` and `ask`: requests to the broker. As add_quota_command.
void add_request_commands(CLI::App& app, const std::string& runtime_dir, int& status);

/// Adds `regions`, `publish`, `cat` and `verify`; as add_quota_command. `runtime_dir` and `status` outlive
/// `app`.
void add_region_commands(CLI::App& app, const std::string& runtime_dir, int& status);

/// Adds the command `claims`: what is prepared for pods of Kubernetes. As add_quota_command.
void add_claims_command(CLI::App& app, const std::string& runtime_dir, int& status);

/// While it lives, Ctrl-C and SIGTERM do not end the program but request a stop of it.
/// To be made before other threads are: they must not take the signals.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  std::stop_token token() const { return stop_.get_token(); }
  bool happened() const { return stop_.stop_requested(); }
  /// False: interrupted meanwhile.   Blocks.
  bool wait(std::chrono::duration<double> time) const;

 private:
  void await();

  sigset_t before_{};
  std::stop_source stop_;
  UniqueFd signals_;
  UniqueFd over_;
  std::thread thread_;
};

}  // namespace gpumem::cli
