#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <set>

#include "base/system/unique_fd.h"
#include "base/text/time_format.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/usage.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/views/text.h"
#include "client/process/runtime_folder.h"
#include "gpumem/bytes.h"

// `gpumem reload`, `gpumem end` and `gpumem ask`: what the broker is to do at once.

namespace gpumem::cli {
namespace {

// The broker may wait for its disk, and for name services.
constexpr std::chrono::seconds kRequestTimeout{60};

int reload(const std::filesystem::path& folder) {
  const auto reloaded =
      call_broker<v1::Admin>(folder, &v1::Admin::Stub::Reload, v1::ReloadRequest(), kRequestTimeout);
  if (!reloaded) return report(reloaded.error().in("not reloaded, the old configuration stays in force"));
  for (const std::string& one : reloaded->unapplied()) std::cerr << "gpumem: " << printable(one) << "\n";
  return print(std::string("reloaded\n"));
}

// Processes to be ended, and how to ask for it.
struct Target {
  v1::EndProcessRequest request;
  std::string name;
  std::vector<pid_t> pids;  // none of another PID namespace
};

Result<Target> find_target(const std::filesystem::path& folder, std::uint64_t number) {
  auto monitor = Monitor::connect(folder);
  if (!monitor) return monitor.error();
  const auto jobs = monitor->jobs();
  if (!jobs) return jobs.error();
  const auto sessions = monitor->sessions();
  if (!sessions) return sessions.error();
  const auto job = std::ranges::find(jobs->jobs(), number, &v1::JobInfo::id);
  const bool is_job = job != jobs->jobs().end();
  Target target{{}, (is_job ? "job " : "session ") + std::to_string(number), {}};
  bool is_known = is_job;
  for (const v1::SessionInfo& one : sessions->sessions()) {
    const bool is_owner = is_job && one.id() == job->owner();
    const bool is_orphan = is_job && job->owner() == 0 && one.job() == number;
    if (!is_owner && !is_orphan && (is_job || one.id() != number)) continue;
    is_known = true;
    if (one.pid() != 0) target.pids.push_back(static_cast<pid_t>(one.pid()));
  }
  if (!is_known)
    return Error{Code::kNotFound, "there is no session or job " + std::to_string(number) +
                                      "; see `gpumem ps` and `gpumem job list`"};
  if (is_job)
    target.request.set_job(number);
  else
    target.request.set_session(number);
  return target;
}

int end(const std::filesystem::path& folder, std::uint64_t number) {
  const auto target = find_target(folder, number);
  if (!target) return report(target.error());
  std::vector<UniqueFd> processes;
  for (const pid_t pid : target->pids)
    processes.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const auto asked =
      call_broker<v1::Admin>(folder, &v1::Admin::Stub::EndProcess, target->request, kRequestTimeout);
  if (!asked) return report(asked.error());
  constexpr int kPatience = 10'000;  // ms
  for (std::size_t i = 0; i < processes.size(); ++i) {
    pollfd ended{processes[i].get(), POLLIN, 0};
    if (!processes[i].valid() || ::poll(&ended, 1, kPatience) == 1) continue;
    const std::string pid = std::to_string(target->pids[i]);
    std::cerr << "gpumem: pid " << pid << " of " << target->name << " got SIGTERM " << kPatience / 1000
              << " s ago and goes on: it takes longer, or ignores the signal. The broker does not kill it; "
              << "`kill -KILL " << pid << "` does\n";
    return 1;
  }
  return print(target->name + (processes.empty() ? " has got SIGTERM\n" : " has ended\n"));
}

// The device of which the session has memory.
Result<std::string> only_device(const Monitor& monitor, std::uint64_t number) {
  const auto sessions = monitor.sessions();
  if (!sessions) return sessions.error();
  const auto session = std::ranges::find(sessions->sessions(), number, &v1::SessionInfo::id);
  const std::string name = "session " + std::to_string(number);
  if (session == sessions->sessions().end())
    return Error{Code::kNotFound, "there is no " + name + "; see `gpumem ps`"};
  std::set<std::string> devices;
  for (const v1::SliceInfo& slice : session->slices())
    if (slice.charged() != 0) devices.insert(slice.device());
  if (devices.size() == 1) return *devices.begin();
  return Error{
      Code::kInvalidArgument,
      name + (devices.empty() ? " has no memory" : " has memory of several devices: say which by --device")};
}

int ask(const std::filesystem::path& folder, v1::AskBackRequest request) {
  auto monitor = Monitor::connect(folder);
  if (!monitor) return report(monitor.error());
  const auto status = monitor->status();
  if (!status) return report(status.error());
  const auto device = request.device().empty() ? only_device(*monitor, request.session())
                                               : find_device(*status, request.device());
  if (!device) return report(device.error());
  request.set_device(*device);
  const auto asked = call_broker<v1::Admin>(folder, &v1::Admin::Stub::AskBack, request, kRequestTimeout);
  if (!asked)
    return report({asked.error().code, with_device_names(asked.error().message, uuids_of(*status))});
  return print("session " + std::to_string(request.session()) + " is asked for " + size_text(asked->bytes()) +
               " within " + span_text(std::chrono::milliseconds(asked->within_ms())) +
               "; `gpumem events` shows what it gives back\n");
}

void add_ask(CLI::App& app, const std::string& runtime_dir, int& status) {
  CLI::App* asked = app.add_subcommand("ask", "Ask a session to give memory back");
  const auto request = std::make_shared<v1::AskBackRequest>();
  add_number(*asked, "SESSION", [request](std::uint64_t session) { request->set_session(session); },
             "Its number in `gpumem ps`", {1})
      ->required();
  asked
      ->add_option_function<std::string>(
          "BYTES",
          [request](const std::string& text) {
            const auto bytes = parse_bytes(text);
            if (!bytes) throw CLI::ValidationError("BYTES", bytes.error().message);
            if (*bytes < kLeastBytes)
              throw CLI::ValidationError("BYTES", to_string(*bytes) + " is less than " +
                                                      to_string(kLeastBytes) +
                                                      ", the least that can be given back");
            request->set_bytes(bytes->count);
          },
          "How much: 2GiB")
      ->required();
  asked
      ->add_option_function<std::string>(
          "--device", [request](const std::string& device) { request->set_device(device); },
          "Of this device: UUID, or its place in `gpumem status` [the one of which it has memory]")
      ->check(refuse_unprintable)
      ->type_name("DEVICE");
  asked->callback([&, request] { status = ask(client::runtime_folder(runtime_dir), *request); });
}

}  // namespace

void add_request_commands(CLI::App& app, const std::string& runtime_dir, int& status) {
  CLI::App* reloaded = app.add_subcommand("reload", "Have the broker read its configuration again");
  reloaded->callback([&] { status = reload(client::runtime_folder(runtime_dir)); });
  CLI::App* ended = app.add_subcommand("end", "End the process of a session, or a job with its command");
  const auto number = std::make_shared<std::uint64_t>();
  add_number(*ended, "SESSION|JOB", [number](std::uint64_t given) { *number = given; },
             "Its number in `gpumem ps` or `gpumem job list`", {1})
      ->required();
  add_ask(app, runtime_dir, status);
  ended->callback([&, number] { status = end(client::runtime_folder(runtime_dir), *number); });
}

}  // namespace gpumem::cli
