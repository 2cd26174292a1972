#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "base/system/unique_fd.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/usage.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/run/line/place.h"
#include "client/cli/run/program/command_line.h"
#include "client/cli/run/program/signals.h"
#include "client/cli/views/views.h"
#include "client/process/runtime_folder.h"

namespace gpumem::cli {
namespace {

constexpr const char* kJobLabel = "gpumem job";  // the label of its sessions, too

struct JobArguments {
  PlaceOptions place;
  std::string name;
  TableFlags flags;
};

int refuse_job(const Error& error) {
  std::cerr << kJobLabel << ": " << error.message << "\n";
  return error.code == Code::kUnavailable ? 3 : 1;
}

// ---- create ----

// The process that owns the job, in the background: it ends by a signal, or when the broker does not know the
// job any more.
class Owner {
 public:
  Owner(JobArguments arguments, std::filesystem::path runtime_folder, UniqueFd told)
      : arguments_(std::move(arguments)),
        runtime_folder_(std::move(runtime_folder)),
        told_(std::move(told)) {}

  int run();

 private:
  Result<std::optional<int>> begin();
  void detach();

  const JobArguments arguments_;
  const std::filesystem::path runtime_folder_;
  UniqueFd told_;  ///< takes the number
  const Signals signals_;
  Progress progress_{kJobLabel};
  std::optional<Place> place_;
};

Result<std::optional<int>> Owner::begin() {
  auto session = Session::connect({.runtime_folder = runtime_folder_,
                                   .label = kJobLabel,
                                   .timeout = Place::kPatience,
                                   .join_job = false});
  if (!session) return session.error();
  auto place = Place::find(std::move(*session), arguments_.place, runtime_folder_);
  if (!place) return place.error();
  place_.emplace(std::move(*place));
  if (auto chosen = place_->choose({}, progress_); !chosen) return chosen.error();
  if (auto begun = place_->begin(arguments_.name); !begun) return begun.error();
  return place_->take(signals_, progress_);
}

// The caller goes on with the number, and waits for nothing of this process.
void Owner::detach() {
  std::string line = std::to_string(place_->job()) + " " + place_->device() + "\n";
  ::prctl(PR_SET_PDEATHSIG, 0);
  const UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing.get(), stream);
  if (::chdir("/") != 0) return;
  if (::write(told_.get(), line.data(), line.size()) < 0) return;
  told_.reset();
}

int Owner::run() {
  const auto ended_by = begin();
  progress_.clear();
  if (!ended_by) return refuse_job(ended_by.error());
  if (*ended_by) die_by(**ended_by);
  detach();
  constexpr std::chrono::seconds kLook{10};
  for (;;) {
    const auto signal = signals_.next_before(-1, kLook);
    if (signal && signals_.asks_to_end(*signal)) return 0;
    const auto account = place_->session().job_account();
    if (!account && account.error().code != Code::kUnavailable) return 0;
  }
}

std::string read_line(int from) {
  std::string line;
  char letter = 0;
  while (::read(from, &letter, 1) == 1 && letter != '\n') line += letter;
  return line;
}

int create_job(const JobArguments& arguments, const std::filesystem::path& runtime_folder) {
  if (auto possible = check_place(arguments.place); !possible) return refuse_job(possible.error());
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return refuse_job(errno_error(errno, "cannot make a pipe"));
  UniqueFd tells(ends[0]);
  UniqueFd told(ends[1]);
  const pid_t self = ::getpid();
  const pid_t owner = ::fork();
  if (owner < 0) return refuse_job(errno_error(errno, "cannot start a process"));
  if (owner == 0) {
    ::setsid();
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // as long as it waits
    if (::getppid() != self) return 1;
    tells.reset();
    // Nobody waits for a pipe or a lock that is open here.
    const auto kept = static_cast<unsigned>(told.get());
    if (kept > 3) ::syscall(SYS_close_range, 3U, kept - 1, 0U);
    ::syscall(SYS_close_range, kept + 1, ~0U, 0U);
    return Owner(arguments, runtime_folder, std::move(told)).run();
  }
  told.reset();
  const std::string line = read_line(tells.get());
  if (!line.empty()) {
    const auto space = line.find(' ');
    if (arguments.place.device == kAnyDevice)
      std::cerr << kJobLabel << ": on " << line.substr(space + 1) << ", the value of CUDA_VISIBLE_DEVICES\n";
    std::cout << line.substr(0, space) << "\n";
    return 0;
  }
  int status = 0;
  ::waitpid(owner, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

// ---- list ----

int list_jobs(const std::filesystem::path& runtime_folder, const TableFlags& flags) {
  auto monitor = Monitor::connect(runtime_folder);
  if (!monitor) return report(monitor.error());
  const auto jobs = monitor->jobs();
  if (!jobs) return report(jobs.error());
  return print(flags.json ? json_text(jobs_json(*jobs))
                          : jobs_text(*jobs, layout_for(*monitor, flags.is_long)));
}

}  // namespace

void add_job_command(CLI::App& app, const std::string& runtime_dir, int& status) {
  const auto arguments = std::make_shared<JobArguments>();  // lives as long as the callbacks
  arguments->place.device = kAllDevices;  // `create` starts no program that it could show one alone
  CLI::App* job =
      app.add_subcommand("job", "Jobs of services and containers, which `gpumem run` does not start");
  job->require_subcommand(1);
  const auto folder = [&runtime_dir] { return client::runtime_folder(runtime_dir); };
  CLI::App* made = job->add_subcommand("create", "Make a job and print its number, the value of GPUMEM_JOB");
  add_place(*made, arguments->place);
  add_time(
      *made, "--wait", [arguments](std::chrono::milliseconds wait) { arguments->place.wait = wait; },
      "Reserve the limit, and wait so long for it: 500ms, 90s, 10m (a number is seconds)");
  add_name(*made, arguments->name);
  made->callback([=, &status] { status = create_job(*arguments, folder()); });
  CLI::App* listed = job->add_subcommand("list", "The jobs: what they hold, reserve and have used");
  add_table_flags(*listed, arguments->flags);
  listed->callback([=, &status] { status = list_jobs(folder(), arguments->flags); });
}

}  // namespace gpumem::cli
