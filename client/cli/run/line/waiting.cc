#include "client/cli/run/line/waiting.h"

#include <algorithm>
#include <memory>

#include "client/cli/monitor/monitor.h"
#include "client/cli/run/line/backoff.h"
#include "client/cli/run/line/broker_session.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"

namespace gpumem::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTick{1000};  // how often the terminal's line is drawn
// Reservations that start at the same moment are charged one after the other. A reservation without --wait
// waits so long for those before it.
constexpr milliseconds kStart{1000};

milliseconds until(Clock::time_point moment) {
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(moment - Clock::now()));
}

std::string waiting_label(Bytes bytes) {
  return std::string(kReserveLabel) + ", waits for " + to_string(bytes);
}

class RoomWait {
 public:
  RoomWait(const RoomWaitOptions& options, Monitor monitor, std::unique_ptr<BrokerSession> session)
      : options_(options), monitor_(std::move(monitor)), session_(std::move(session)) {}

  Result<Waited> run(const Signals& signals, Progress& progress);

 private:
  // The present obstacle, in words; empty: there is none.
  Result<std::string> obstacle();
  Result<std::string> obstacle_of_device();
  Result<std::string> obstacle_of_tenant();
  Result<std::uint64_t> ahead();
  Clock::time_point next_look();
  Clock::time_point end() const;

  const RoomWaitOptions& options_;
  const Clock::time_point began_ = Clock::now();
  Monitor monitor_;
  std::unique_ptr<BrokerSession> session_;
  std::uint64_t ahead_ = 0;  // when it last looked; 0: none, or there was no room
  Backoff looks_{milliseconds(100), milliseconds(2000)};
};

Result<std::string> RoomWait::obstacle_of_device() {
  auto status = monitor_.status();
  if (!status) return status.error();
  for (const v1::DeviceStatus& device : status->devices()) {
    if (device.uuid() != options_.device) continue;
    const Bytes outside = Bytes{device.total()}.minus({device.pool()});
    const std::string of_outside = to_string(outside) + " of " + options_.name +
                                   " that are not the broker's (" + size_text(device.pool()) + " are)";
    if (outside < options_.bytes) {
      return Error{Code::kInvalidArgument,
                   to_string(options_.bytes) + " are more than the " + of_outside +
                       ": what programs take by themselves has to fit there; ask the administrator to lower "
                       "`reserve` for the device"};
    }
    const bool fits = options_.bytes <= outside.minus({device.outside()});
    return fits ? std::string() : "of the " + of_outside + ", " + size_text(device.outside()) + " are taken";
  }
  return Error{Code::kNotFound, "the broker lends no device " + options_.device};
}

Result<std::string> RoomWait::obstacle_of_tenant() {
  const std::string& tenant = session_->opened().tenant();
  const auto usage = usage_of(monitor_, tenant, options_.device);
  if (!usage) return usage.error();
  const Bytes limit{usage->limit()};
  if (options_.bytes > limit) {
    return Error{Code::kInvalidArgument, to_string(options_.bytes) + " are more than tenant " + tenant +
                                             " may have: its limit is " + to_string(limit)};
  }
  const Bytes charged{usage->charged()};
  if (options_.bytes <= limit.minus(charged)) return std::string();
  return "of the tenant's limit of " + to_string(limit) + ", " + to_string(charged) + " are charged";
}

// Reservations of the tenant that wait, and have begun to before this one.
Result<std::uint64_t> RoomWait::ahead() {
  auto sessions = monitor_.sessions();
  if (!sessions) return sessions.error();
  const std::string waits = std::string(kReserveLabel) + ", waits for ";
  return static_cast<std::uint64_t>(std::ranges::count_if(sessions->sessions(), [&](const auto& one) {
    return one.tenant() == session_->opened().tenant() && one.id() < session_->opened().session() &&
           one.label().starts_with(waits) && !one.ended();
  }));
}

Result<std::string> RoomWait::obstacle() {
  ahead_ = 0;
  auto words = obstacle_of_device();
  if (words && words->empty()) words = obstacle_of_tenant();
  if (!words || !words->empty()) return words;
  const auto before = ahead();
  if (!before) return before.error();
  ahead_ = *before;
  return ahead_ == 0 ? std::string() : std::to_string(ahead_) + " ahead in the line";
}

// The next in the line looks soonest: all together ask little more often than a few do.
Clock::time_point RoomWait::next_look() {
  constexpr std::uint64_t kPlaces = 10;  // behind them all look as seldom
  if (ahead_ == 0) return looks_.next();
  looks_.begin_anew();
  return looks_.next_of(milliseconds(200) * std::min(ahead_, kPlaces));
}

Clock::time_point RoomWait::end() const {
  return ahead_ == 0 ? options_.until : std::max(options_.until, began_ + kStart);
}

// A listing that is refused or late is no end of the waiting.
bool is_busy(const Error& error) {
  return error.code == Code::kResourceExhausted || error.code == Code::kDeadlineExceeded;
}

Result<Waited> RoomWait::run(const Signals& signals, Progress& progress) {
  const auto ended_by = [](const signalfd_siginfo& signal) {
    return Waited{static_cast<int>(signal.ssi_signo), nullptr};
  };
  for (;;) {
    auto words = obstacle();
    if (!words && is_busy(words.error())) words = words.error().message;
    if (!words) return words.error();
    if (words->empty()) return Waited{{}, std::move(session_)};
    const Clock::time_point end = this->end();
    if (until(end).count() == 0) {
      const bool waited = options_.wait.count() > 0;
      return Error{waited ? Code::kDeadlineExceeded : Code::kResourceExhausted,
                   to_string(options_.bytes) + " cannot be reserved: " + *words +
                       (waited ? "; waited " + span_text(options_.wait) : "; --wait waits for it")};
    }
    const std::string state =
        "waiting for " + to_string(options_.bytes) + " of " + options_.name + ": " + *words;
    for (const auto next = std::min(next_look(), end); Clock::now() < next;) {
      const milliseconds waited = options_.wait - until(options_.until);
      progress.show(state, "; " + span_text(std::max(milliseconds(0), waited)));
      const auto signal = signals.next_for_itself_before(-1, std::min(kTick, until(next)));
      if (signal && signals.asks_to_end(*signal)) return ended_by(*signal);
      if (signal && signal->ssi_signo == SIGTSTP) stop_self();
    }
  }
}

}  // namespace

Result<Waited> wait_for_room(const RoomWaitOptions& options, const Signals& signals, Progress& progress) {
  auto monitor = Monitor::connect(options.runtime_folder);
  if (!monitor) return monitor.error();
  auto session = BrokerSession::open(options.runtime_folder, waiting_label(options.bytes));
  if (!session) return session.error();
  auto waited = RoomWait(options, std::move(*monitor), std::move(*session)).run(signals, progress);
  progress.clear();
  return waited;
}

}  // namespace gpumem::cli
