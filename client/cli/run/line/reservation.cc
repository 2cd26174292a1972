#include "client/cli/run/line/reservation.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/system/process_stat.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/views/text.h"
#include "cuda/nvml.h"

namespace gpumem::cli {
namespace {

// How often the broker is asked what it sees processes of the command hold.
constexpr std::chrono::milliseconds kLook{2000};
// How often a broker that is gone is looked for.
constexpr std::chrono::milliseconds kReturn{1000};

/// Whether the process descends from `ancestor`, or is it.
bool descends(pid_t pid, pid_t ancestor) {
  for (int depth = 0; pid > 0 && depth < 1024; ++depth) {
    if (pid == ancestor) return true;
    const auto stat = stat_of(pid);
    pid = stat ? static_cast<pid_t>(stat->parent.value_or(0)) : 0;
  }
  return false;
}

v1::SessionRequest charge_request(const std::string& device, Bytes bytes) {
  v1::SessionRequest request;
  request.mutable_charge()->set_device(device);
  request.mutable_charge()->set_bytes(bytes.count);
  return request;
}

}  // namespace

Result<void> charge(BrokerSession& session, const ReservationOptions& options) {
  const std::string& device = options.device;
  if (auto charged = session.ask(charge_request(device, options.bytes)); !charged) return charged.error();
  const auto monitor = Monitor::connect(options.runtime_folder);
  const auto usage = monitor ? usage_of(*monitor, session.opened().tenant(), device)
                             : Result<v1::TenantUsage>(monitor.error());
  if (usage && usage->debt() == 0) return {};
  if (auto undone = session.ask(charge_request(device, {})); !undone) return undone.error();
  if (!usage) return Error{Code::kResourceExhausted, usage.error().message};
  return Error{Code::kResourceExhausted, to_string(options.bytes) + " would pass the tenant's limit of " +
                                             size_text(usage->limit()) + " by " + size_text(usage->debt())};
}

Reservation::Reservation(ReservationOptions options, std::unique_ptr<BrokerSession> session,
                         PressureHook& hook, Progress& progress)
    : options_(std::move(options)),
      hook_(hook),
      progress_(progress),
      session_(std::move(session)),
      session_pid_(options_.command > 0 ? options_.command : ::getpid()),
      reserved_(options_.bytes),
      declared_(options_.bytes),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  thread_ = std::thread([this] { work(); });
}

Reservation::~Reservation() {
  ::eventfd_write(stop_.get(), 1);
  hook_.stop();
  thread_.join();
}

void Reservation::work() {
  for (;;) {
    std::array<pollfd, 2> polled{
        {{stop_.get(), POLLIN, 0}, {session_ ? session_->readable() : -1, POLLIN, 0}}};
    ::poll(polled.data(), polled.size(), static_cast<int>((session_ ? kLook : kReturn).count()));
    if (polled[0].revents != 0) return;
    if (!session_) {
      reconnect();
      continue;
    }
    session_->clear();
    if (session_->over()) {
      session_.reset();
      continue;
    }
    if (const auto pressure = session_->take_pressure()) {
      for (const v1::DevicePressure& one : pressure->devices()) {
        if (one.device() == options_.device) answer(one);
      }
    }
    reconcile();
  }
}

// The session was that of the command's process, which cannot connect any more: it is this one's now.
void Reservation::reconnect() {
  auto session = BrokerSession::open(options_.runtime_folder, options_.name);
  if (!session) return;
  session_ = std::move(*session);
  session_pid_ = ::getpid();
  declared_ = {};
  declare(reserved_.minus(charged_besides()));
  progress_.say("the broker has been away; " + to_string(reserved_) + " are reserved again");
}

void Reservation::reconcile() {
  if (options_.command > 0) declare(reserved_.minus(charged_besides()));
}

void Reservation::declare(Bytes bytes) {
  if (bytes == declared_) return;
  if (session_->ask(charge_request(options_.device, bytes))) declared_ = bytes;
}

// The bytes that are charged for processes of the command other than the session's own. The broker already
// knows that the session's own process has declared its memory.
Bytes Reservation::charged_besides() const {
  Bytes sum;
  const auto monitor = Monitor::connect(options_.runtime_folder);
  const auto seen = monitor ? monitor->reconcile(false) : Result<v1::ReconcileResponse>(monitor.error());
  if (!seen) return sum;
  for (const v1::Reconciliation& device : seen->devices()) {
    if (device.device() != options_.device) continue;
    for (const v1::ForeignProcess& process : device.processes()) {
      const auto pid = static_cast<pid_t>(process.pid());
      const bool is_ours = !process.tenant().empty() && pid != session_pid_ && descends(pid, ::getpid());
      if (is_ours) sum = sum.plus({process.bytes()}).value_or(sum);
    }
  }
  return sum;
}

// ---- Pressure ----

void Reservation::answer(const v1::DevicePressure& pressure) {
  const Bytes asked{pressure.bytes()};
  const std::chrono::milliseconds within(pressure.within_ms());
  progress_.say("the broker asks for " + to_string(asked) + " back within " + span_text(within));
  if (!hook_.is_set()) {
    progress_.say("nobody can be asked for it: --on-pressure names who can");
    return tell_spent();
  }
  const auto asked_for = hook_.ask({options_.device, asked, within, options_.name, options_.command});
  if (!asked_for) {
    if (asked_for.error().code != Code::kCancelled) progress_.say(asked_for.error().message);
    return tell_spent();
  }
  const Bytes given = let_go(asked);
  progress_.say(to_string(given) + " given back; " + to_string(reserved_) + " stay reserved");
  if (given < asked) tell_spent();
}

// Charges less, by what was asked for, but never less than the command's processes are seen to hold.
Bytes Reservation::let_go(Bytes asked) {
  const Bytes floor = used_by_command().value_or(Bytes{});
  const Bytes now = std::min(reserved_, std::max(reserved_.minus(asked), floor));
  const Bytes given = reserved_ - now;
  reserved_ = now;
  declare(reserved_.minus(charged_besides()));
  return given;
}

// Nothing, if the management library does not tell.
std::optional<Bytes> Reservation::used_by_command() const {
  const auto uuid = cuda::parse_device_uuid(options_.device);
  const auto nvml = cuda::Nvml::open(options_.driver_folder);
  if (options_.command == 0 || !uuid || !nvml) return std::nullopt;
  const auto processes = (*nvml)->processes(*uuid);
  if (!processes) return std::nullopt;
  Bytes sum;
  for (const cuda::ProcessMemory& one : *processes) {
    if (descends(static_cast<pid_t>(one.pid), ::getpid())) sum = sum.plus(one.used).value_or(sum);
  }
  return sum;
}

void Reservation::tell_spent() {
  v1::SessionRequest request;
  request.mutable_spent()->set_device(options_.device);
  static_cast<void>(session_->ask(std::move(request)).has_value());  // if it is over, the next turn sees it
}

}  // namespace gpumem::cli
