#include "client/cli/run/line/waiting.h"

#include <algorithm>
#include <memory>
#include <random>

#include "client/cli/monitor/monitor.h"
#include "client/cli/run/line/broker_session.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"

namespace gpumem::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTick{1000};      // how often the terminal's line is drawn
constexpr milliseconds kFirstTick{200};  // most requests are granted before it

/// The pauses between questions to the broker: each is up to twice as long as the one before. Processes that
/// begin together do not ask together, because each pause ends at a random moment of its second half.
class Backoff {
 public:
  Backoff(milliseconds first, milliseconds longest) : first_(first), longest_(longest) {}

  Clock::time_point next() {
    const auto end = Clock::now() + in_second_half(pause_);
    pause_ = std::min(2 * pause_, longest_);
    return end;
  }
  Clock::time_point next_of(milliseconds pause) { return Clock::now() + in_second_half(pause); }
  void begin_anew() { pause_ = first_; }

 private:
  milliseconds in_second_half(milliseconds pause) {
    return milliseconds(std::uniform_int_distribution(pause.count() / 2, pause.count())(random_));
  }

  milliseconds first_, longest_;
  milliseconds pause_ = first_;
  std::minstd_rand random_{std::random_device()()};
};

milliseconds until(Clock::time_point moment) {
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(moment - Clock::now()));
}

class MemoryWait {
 public:
  MemoryWait(const MemoryWaitOptions& options, const Signals& signals, Progress& progress)
      : options_(options),
        signals_(signals),
        progress_(progress),
        end_(Clock::now() + options.wait),
        bytes_(options.bytes) {}

  Result<Waited> run();

 private:
  Result<void> open();
  void ask_for_memory();
  Result<void> refused(const v1::FailedResponse& failed);
  Result<Bytes> room_of_limit(Bytes granularity) const;
  void ask_how_it_goes();
  void show(const v1::SessionAnswer& answer);
  void show_full(const v1::Denial& denial);
  void show(std::string state, std::string obstacle);
  void draw() { progress_.show(state_, time_text() + obstacle_); }
  milliseconds left() const { return until(end_); }
  milliseconds pause() const;
  std::string amount_text() const { return to_string(bytes_) + " of " + short_uuid(options_.device); }
  std::string time_text() const {
    return "; " + span_text(options_.wait - left()) + " of " + span_text(options_.wait);
  }

  const MemoryWaitOptions& options_;
  const Signals& signals_;
  Progress& progress_;
  const Clock::time_point end_;
  std::unique_ptr<BrokerSession> session_;
  std::uint64_t slice_ = 0;
  Bytes bytes_;

  std::uint64_t growth_ = 0;  // the request for memory; 0: none is under way
  Backoff growths_{milliseconds(100), milliseconds(2000)};
  Clock::time_point next_growth_;
  std::uint64_t explanation_ = 0;  // the request whose answer tells how it goes; 0: none is under way
  Backoff explanations_{milliseconds(1000), milliseconds(16'000)};
  Clock::time_point next_explanation_ = Clock::now() + kFirstTick;
  std::string state_, obstacle_;  // as last shown
};

Result<void> MemoryWait::open() {
  auto session = BrokerSession::open(options_.runtime_folder, options_.label);
  if (!session) return session.error();
  session_ = std::move(*session);
  v1::SessionRequest request;
  request.mutable_open_slice()->set_device(options_.device);
  request.mutable_open_slice()->set_label(options_.label);
  auto opened = session_->ask(std::move(request));
  if (!opened) return opened.error();
  slice_ = opened->slice_opened().slice();
  // A listing that is refused or late ends nothing: then contexts stand in the way, too.
  const auto room = room_of_limit(Bytes{opened->slice_opened().granularity()});
  if (room && !room->is_zero()) bytes_ = std::min(bytes_, *room);
  return {};
}

// The room that the tenant's limit has besides the contexts of the tenant's programs, which stay as long as
// the programs do. Contexts are what is charged outside of slices and has not been declared.
Result<Bytes> MemoryWait::room_of_limit(Bytes granularity) const {
  const std::string& tenant = session_->opened().tenant();
  const auto monitor = Monitor::connect(options_.runtime_folder);
  if (!monitor) return monitor.error();
  const auto usage = usage_of(*monitor, tenant, options_.device);
  if (!usage) return usage.error();
  const Bytes limit{usage->limit()};
  Bytes contexts{usage->outside()};
  if (bytes_ <= limit.minus(contexts)) return bytes_;
  const auto sessions = monitor->sessions();
  if (!sessions) return sessions.error();
  for (const v1::SessionInfo& one : sessions->sessions()) {
    if (one.tenant() != tenant) continue;
    for (const v1::SharedMemory& shared : one.shared())
      if (shared.device() == options_.device) contexts = contexts.minus({shared.declared()});
  }
  return limit.minus(contexts).rounded_down(granularity);
}

void MemoryWait::ask_for_memory() {
  v1::SessionRequest request;
  v1::GrowRequest& grow = *request.mutable_grow();
  grow.set_wait_ms(static_cast<std::uint64_t>(left().count()));
  v1::GrowPart& part = *grow.add_parts();
  part.set_slice(slice_);
  part.set_bytes(bytes_.count);
  growth_ = session_->send(std::move(request));
}

// Memory of the tenant's own programs is the obstacle; they may return it. Errors  waiting does not help.
Result<void> MemoryWait::refused(const v1::FailedResponse& failed) {
  growth_ = 0;
  const v1::Denial& denial = failed.denial();
  const bool is_limit =
      denial.reason() == v1::Denial::REASON_TENANT_LIMIT || denial.reason() == v1::Denial::REASON_DEBT;
  const bool may_come_back = is_limit && denial.asked() <= denial.limiting_limit();
  if (!may_come_back || left().count() == 0) return error_of(failed);
  show_full(denial);
  next_growth_ = growths_.next();
  return {};
}

// Nobody waits for the answer, as a signal may come first. A refusal (a user has so many explanations a
// second) only means that the line on the terminal says less.
void MemoryWait::ask_how_it_goes() {
  if (growth_ == 0 || explanation_ != 0 || Clock::now() < next_explanation_) return;
  next_explanation_ = explanations_.next();
  v1::SessionRequest request;
  request.mutable_explain();
  explanation_ = session_->send(std::move(request));
}

void MemoryWait::show(const v1::SessionAnswer& answer) {
  explanation_ = 0;
  if (answer.has_failed() && state_.empty()) show("waiting for " + amount_text(), "");
  for (const v1::Denial& denial : answer.explained().waiting()) {
    if (denial.session() != session_->opened().session()) continue;
    const std::uint64_t ahead = denial.waiters_ahead();
    show("waiting for " + amount_text() +
             (ahead == 0 ? ", first in the line" : ", " + std::to_string(ahead) + " ahead"),
         ": " + obstacle_words(denial));
  }
}

void MemoryWait::show_full(const v1::Denial& denial) {
  show("waiting for " + amount_text() + " within the tenant's limit", ": " + obstacle_words(denial));
}

void MemoryWait::show(std::string state, std::string obstacle) {
  state_ = std::move(state);
  obstacle_ = std::move(obstacle);
  draw();
}

milliseconds MemoryWait::pause() const {
  const milliseconds pause = std::min(kTick, left() + kFirstTick);
  if (growth_ == 0) return std::min(pause, until(std::min(next_growth_, end_)));
  return explanation_ == 0 ? std::min(pause, until(next_explanation_)) : pause;
}

Result<Waited> MemoryWait::run() {
  if (auto opened = open(); !opened) return opened.error();
  ask_for_memory();
  for (;;) {
    const auto signal = signals_.next_for_itself_before(session_->readable(), pause());
    if (signal && signals_.asks_to_end(*signal)) return Waited{static_cast<int>(signal->ssi_signo)};
    if (signal && signal->ssi_signo == SIGTSTP) stop_self();
    session_->clear();
    if (const auto over = session_->over()) return *over;
    const auto answer = session_->answer_to(growth_);
    if (answer && answer->has_granted()) return Waited{};
    if (answer) {
      if (auto goes_on = refused(answer->failed()); !goes_on) return goes_on.error();
    } else if (growth_ == 0 && Clock::now() >= std::min(next_growth_, end_)) {
      ask_for_memory();
    }
    if (const auto explained = session_->answer_to(explanation_)) show(*explained);
    ask_how_it_goes();
    if (!state_.empty()) draw();
  }
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

  const RoomWaitOptions& options_;
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
    const std::string of_outside = to_string(outside) + " of " + short_uuid(device.uuid()) +
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
    if (until(options_.until).count() == 0) {
      const bool waited = options_.wait.count() > 0;
      return Error{waited ? Code::kDeadlineExceeded : Code::kResourceExhausted,
                   to_string(options_.bytes) + " cannot be reserved: " + *words +
                       (waited ? "; waited " + span_text(options_.wait) : "; --wait waits for it")};
    }
    const std::string state =
        "waiting for " + to_string(options_.bytes) + " of " + short_uuid(options_.device) + ": " + *words;
    for (const auto next = std::min(next_look(), options_.until); Clock::now() < next;) {
      const milliseconds waited = options_.wait - until(options_.until);
      progress.show(state, "; " + span_text(std::max(milliseconds(0), waited)));
      const auto signal = signals.next_for_itself_before(-1, std::min(kTick, until(next)));
      if (signal && signals.asks_to_end(*signal)) return ended_by(*signal);
      if (signal && signal->ssi_signo == SIGTSTP) stop_self();
    }
  }
}

}  // namespace

Result<Waited> wait_for_memory(const MemoryWaitOptions& options, const Signals& signals, Progress& progress) {
  auto waited = MemoryWait(options, signals, progress).run();
  progress.clear();
  return waited;
}

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
