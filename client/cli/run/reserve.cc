#include <sys/wait.h>
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/text/time_format.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/run/line/broker_session.h"
#include "client/cli/run/line/place.h"
#include "client/cli/run/line/reservation.h"
#include "client/cli/run/line/terminations.h"
#include "client/cli/run/line/waiting.h"
#include "client/cli/run/program/command.h"
#include "client/cli/run/program/command_line.h"
#include "client/cli/run/program/signals.h"
#include "client/cli/views/views.h"
#include "client/process/runtime_folder.h"
#include "gpumem/session.h"

namespace gpumem::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct ReserveOptions {
  std::filesystem::path runtime_folder;
  Bytes bytes;
  std::string device;                 ///< as RunOptions::device; empty: the first that is visible
  std::chrono::milliseconds wait{0};  ///< 0: not at all
  std::string on_pressure;            ///< as PressureHook::parse
  std::string name;
  std::vector<std::string> words;  ///< the command; none: until interrupted
};

int refuse_reserving(const Error& error, int status) {
  Progress(kReserveLabel).say(error.message);
  return status;
}

/// One run of the command: waits for room, charges it, and keeps it as long as the command runs.
class Reserving {
 public:
  Reserving(const ReserveOptions& options, PressureHook& hook)
      : options_(options), hook_(hook), end_(Clock::now() + options.wait) {}

  /// Returns the status of the command as waitpid() does, or an exit status if no command has run.
  Result<int, CommandError> run();

 private:
  Result<void, CommandError> begin();
  Result<void, CommandError> begin_command();
  Result<void, CommandError> begin_alone();
  int hold();
  void reserve(std::unique_ptr<BrokerSession> session, pid_t command);

  const ReserveOptions& options_;
  PressureHook& hook_;
  const Clock::time_point end_;
  const Signals signals_;
  Progress progress_{kReserveLabel};
  ReservationOptions settings_;
  std::string tenant_;
  std::optional<Command> command_;
  std::optional<Reservation> reservation_;
};

Result<ReservationOptions> find_settings(const ReserveOptions& options) {
  auto monitor = Monitor::connect(options.runtime_folder);
  if (!monitor) return monitor.error();
  auto status = monitor->status();
  if (!status) return status.error();
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  auto device = options.device.empty() ? first_visible(*status, visible == nullptr ? "" : visible)
                                       : find_device(*status, options.device);
  if (!device) return options.device.empty() ? device.error() : device.error().in("--device");
  // The lane tells where the driver is; gRPC does not.
  auto session = Session::connect({options.runtime_folder.string(), kReserveLabel});
  return ReservationOptions{options.runtime_folder,
                            client::driver_folder(session ? session->driver_folder() : ""),
                            *device,
                            device_name(*device, uuids_of(*status)),
                            options.bytes,
                            options.name.empty() ? std::string(kReserveLabel) : options.name};
}

void Reserving::reserve(std::unique_ptr<BrokerSession> session, pid_t command) {
  settings_.command = command;
  tenant_ = session->opened().tenant();
  reservation_.emplace(settings_, std::move(session), hook_, progress_);
}

Result<void, CommandError> Reserving::begin_alone() {
  auto session = BrokerSession::open(settings_.runtime_folder, settings_.name);
  if (!session) return CommandError(session.error());
  if (auto charged = charge(**session, settings_); !charged) return CommandError(charged.error());
  progress_.say(to_string(settings_.bytes) + " of " + settings_.device_name +
                " are reserved until this program is interrupted");
  reserve(std::move(*session), 0);
  return {};
}

// The command's process connects, so that the session is its own: what it takes is what was declared.
Result<void, CommandError> Reserving::begin_command() {
  auto handover = SessionHandover::make(settings_.runtime_folder, options_.words.front());
  if (!handover) return CommandError(handover.error());
  std::unique_ptr<BrokerSession> session;
  const auto open_and_charge = [&]() -> Result<void> {
    auto connection = handover->receive();
    if (!connection) return connection.error();
    auto opened = BrokerSession::open_over(std::move(*connection), settings_.runtime_folder, settings_.name);
    if (!opened) return opened.error();
    session = std::move(*opened);
    return charge(*session, settings_);
  };
  const auto meanwhile = [&](pid_t) {
    auto charged = open_and_charge();
    handover->release(charged.has_value());
    return charged;
  };
  auto started = Command::start(
      {options_.words, own_environment(), [&] { return handover->in_command(); }, meanwhile}, signals_);
  if (!started) return started.error();
  command_ = std::move(*started);
  reserve(std::move(session), command_->pid());
  return {};
}

// Another program may take the room before it is charged: then this one waits for room again.
Result<void, CommandError> Reserving::begin() {
  for (;;) {
    auto waited = wait_for_room({settings_.runtime_folder, settings_.device, settings_.device_name,
                                 settings_.bytes, options_.wait, end_},
                                signals_, progress_);
    if (!waited) return CommandError(waited.error());
    if (waited->signal) die_by(*waited->signal);
    auto begun = options_.words.empty() ? begin_alone() : begin_command();
    if (begun || begun.error().code != Code::kResourceExhausted || Clock::now() >= end_) return begun;
  }
}

// Until it is asked to end.
int Reserving::hold() {
  for (;;) {
    const signalfd_siginfo signal = signals_.next();
    if (signals_.asks_to_end(signal)) return 0;
    if (signal.ssi_signo == SIGTSTP) stop_self();
    while (reap_next([this](pid_t pid, int status) { hook_.child_ended(pid, status); })) {
    }
  }
}

Result<int, CommandError> Reserving::run() {
  AnswerInTime<ReservationOptions> asked([options = options_] { return find_settings(options); }, signals_);
  const Result<ReservationOptions>& found = asked.answer();
  if (asked.is_stuck()) std::_Exit(refuse_reserving(found.error(), kOwnFailure));
  if (!found) return CommandError(found.error());
  settings_ = *found;
  if (auto begun = begin(); !begun) return begun.error();
  if (!command_) return hold();
  const WallTime began = std::chrono::system_clock::now();
  const int status =
      command_->wait(signals_, [this](pid_t pid, int status) { hook_.child_ended(pid, status); });
  tell_terminations({.runtime_folder = settings_.runtime_folder,
                     .tenant = tenant_,
                     .pid = command_->pid(),
                     .began = began,
                     .status = status},
                    signals_, progress_);
  return status;
}

// Has memory charged to the tenant while a command runs that takes it by itself. Returns the exit status;
// ends this process by a signal if the command has ended so.
int reserve_memory(const ReserveOptions& options) {
  auto hook = PressureHook::parse(options.on_pressure);
  if (!hook) return refuse_reserving(hook.error().in("--on-pressure"), kOwnFailure);
  const auto ended = Reserving(options, *hook).run();
  if (!ended) return refuse_reserving(ended.error(), ended.error().status);
  return options.words.empty() ? *ended : end_as(*ended);
}

constexpr const char* kReserveFooter =
    "Without a command, the memory is reserved until this program is interrupted.\n"
    "Exit status: that of the command; 125 gpumem itself has failed, or there is no room; 126 the command\n"
    "cannot be executed; 127 there is no such command.";

constexpr std::chrono::hours kForever{24 * 366};

struct ReserveArguments {
  ReserveOptions options;
  std::optional<Bytes> bytes;
  std::string runtime_dir;
};

void add_bytes(CLI::App& reserve, std::optional<Bytes>& bytes) {
  constexpr const char* kName = "BYTES";
  reserve
      .add_option_function<std::string>(
          kName,
          [&bytes](const std::string& text) {
            const auto read = parse_bytes(text);
            if (!read) throw CLI::ValidationError(kName, read.error().message);
            if (auto enough = check_least_limit(*read, kName); !enough)
              throw CLI::ValidationError(enough.error().message);
            bytes = *read;
          },
          "How much: 9GiB")
      ->type_name("BYTES")
      ->required();
}

void add_wait(CLI::App& reserve, ReserveOptions& options) {
  reserve
      .add_option_function<std::vector<std::string>>(
          "--wait",
          [&options](const std::vector<std::string>& texts) {
            options.wait = kForever;
            if (texts.empty() || texts.front().empty() || texts.front() == "{}") return;
            const auto read = parse_duration(texts.front());
            if (!read) throw CLI::ValidationError("--wait", read.error().message);
            options.wait = *read;
          },
          "Wait for room, so long at most: 500ms, 90s, 10m; a number is seconds [until there is some]")
      ->expected(0, 1)
      ->type_name("[TIME]");
}

}  // namespace

void add_reserve_command(CLI::App& app, const std::string& runtime_dir, const SplitLine& line, int& status) {
  const auto arguments = std::make_shared<ReserveArguments>();  // lives as long as the callback
  ReserveOptions& options = arguments->options;
  CLI::App* reserve =
      app.add_subcommand("reserve", "Have memory charged while a program runs that takes it by itself");
  take_command(*reserve, arguments->runtime_dir);
  reserve->footer(kReserveFooter);
  add_bytes(*reserve, arguments->bytes);
  reserve->add_option("--device", options.device, "Of this device: UUID, or its place in `gpumem status` [0]")
      ->type_name("DEVICE");
  add_wait(*reserve, options);
  reserve
      ->add_option(
          "--on-pressure", options.on_pressure,
          "Who lets go of memory when it is asked for: a shell command, or an http:// URL to POST to")
      ->type_name("COMMAND|URL");
  add_name(*reserve, options.name);
  reserve->callback([=, &runtime_dir, &line, &status] {
    ReserveOptions& given = arguments->options;
    const std::string& named = arguments->runtime_dir.empty() ? runtime_dir : arguments->runtime_dir;
    given.bytes = *arguments->bytes;
    given.words = command_words(*reserve, line);
    given.runtime_folder = client::runtime_folder(named);
    status = reserve_memory(given);
  });
}

}  // namespace gpumem::cli
