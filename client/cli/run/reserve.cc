#include "client/cli/run/reserve.h"

#include <sys/wait.h>

#include <cstdlib>
#include <optional>

#include "client/cli/lent_devices.h"
#include "client/cli/monitor.h"
#include "client/cli/run/await_answer.h"
#include "client/cli/run/command.h"
#include "client/cli/run/reservation.h"
#include "client/cli/run/room.h"
#include "client/cli/run/session_handover.h"
#include "client/cli/views.h"
#include "client/runtime_folder.h"
#include "gpumem/session.h"

namespace gpumem::cli {
namespace {

using Clock = std::chrono::steady_clock;

int refuse_reserving(const Error& error, int status) {
  Progress(kReserveLabel).say(error.message);
  return status;
}

/// One run of the command: waits for room, claims it, and keeps it as long as the command runs.
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
  if (!device) return device.error();
  // The lane tells where the driver is; gRPC does not.
  auto session = Session::connect({options.runtime_folder.string(), kReserveLabel});
  return ReservationOptions{options.runtime_folder,
                            client::driver_folder(session ? session->driver_folder() : ""), *device,
                            options.bytes, options.name.empty() ? std::string(kReserveLabel) : options.name};
}

void Reserving::reserve(std::unique_ptr<BrokerSession> session, pid_t command) {
  settings_.command = command;
  reservation_.emplace(settings_, std::move(session), hook_, progress_);
}

Result<void, CommandError> Reserving::begin_alone() {
  auto session = BrokerSession::open(settings_.runtime_folder, settings_.name);
  if (!session) return CommandError(session.error());
  if (auto claimed = claim(**session, settings_.device, settings_.bytes); !claimed)
    return CommandError(claimed.error());
  progress_.say(to_string(settings_.bytes) + " of " + short_uuid(settings_.device) +
                " are reserved until this program is interrupted");
  reserve(std::move(*session), 0);
  return {};
}

// The command's process connects, so that the session is its own: what it takes is what was declared.
Result<void, CommandError> Reserving::begin_command() {
  auto handover = SessionHandover::make(settings_.runtime_folder, options_.words.front());
  if (!handover) return CommandError(handover.error());
  std::unique_ptr<BrokerSession> session;
  const auto open_and_claim = [&]() -> Result<void> {
    auto connection = handover->receive();
    if (!connection) return connection.error();
    auto opened = BrokerSession::open_over(std::move(*connection), settings_.runtime_folder, settings_.name);
    if (!opened) return opened.error();
    session = std::move(*opened);
    return claim(*session, settings_.device, settings_.bytes);
  };
  const auto meanwhile = [&](pid_t) {
    auto claimed = open_and_claim();
    handover->release(claimed.has_value());
    return claimed;
  };
  auto started = Command::start(
      {options_.words, own_environment(), [&] { return handover->in_command(); }, meanwhile}, signals_);
  if (!started) return started.error();
  command_ = std::move(*started);
  reserve(std::move(session), command_->pid());
  return {};
}

// Between the look and the claim, somebody else may have taken the room: then it is waited for anew.
Result<void, CommandError> Reserving::begin() {
  for (;;) {
    auto room =
        wait_for_room({settings_.runtime_folder, settings_.device, settings_.bytes, options_.wait, end_},
                      signals_, progress_);
    if (!room) return CommandError(room.error());
    if (room->signal) die_by(*room->signal);
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
  return command_->wait(signals_, [this](pid_t pid, int status) { hook_.child_ended(pid, status); });
}

}  // namespace

int reserve_memory(const ReserveOptions& options) {
  auto hook = PressureHook::parse(options.on_pressure);
  if (!hook) return refuse_reserving(hook.error().in("--on-pressure"), kOwnFailure);
  const auto ended = Reserving(options, *hook).run();
  if (!ended) return refuse_reserving(ended.error(), ended.error().status);
  return options.words.empty() ? *ended : end_as(*ended);
}

}  // namespace gpumem::cli
