#include "client/cli/run/line/waiting.h"

#include <algorithm>
#include <memory>

#include "client/cli/monitor/monitor.h"
#include "client/cli/run/line/broker_session.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"

namespace gpumem::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTick{1000};
constexpr milliseconds kFirstTick{200};  // most requests are granted before it

// How the session's tenant stands on the device; none: the broker lends no such device.
Result<std::optional<v1::Standing>> standing_on(const std::string& device, BrokerSession& session) {
  v1::SessionRequest request;
  request.mutable_explain();
  auto answer = session.ask(std::move(request));
  if (!answer) return answer.error();
  for (const v1::Standing& one : answer->explained().devices()) {
    if (one.device() == device) return std::optional(one);
  }
  return std::optional<v1::Standing>();
}

class MemoryWait {
 public:
  MemoryWait(const MemoryWaitOptions& options, const Signals& signals, Progress& progress)
      : options_(options), signals_(signals), progress_(progress), end_(Clock::now() + options.wait) {}

  Result<Waited> run();

 private:
  Result<void> open();
  std::uint64_t ask_for_memory();
  void ask_how_it_goes();
  void show(const v1::SessionAnswer& answer);
  void show_full(const v1::Denial& denial);
  milliseconds left() const {
    return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(end_ - Clock::now()));
  }
  std::string time_text() const {
    return "; " + span_text(options_.wait - left()) + " of " + span_text(options_.wait);
  }

  const MemoryWaitOptions& options_;
  const Signals& signals_;
  Progress& progress_;
  const Clock::time_point end_;
  std::unique_ptr<BrokerSession> session_;
  std::uint64_t slice_ = 0;
  std::uint64_t explanation_ = 0;  // the request whose answer tells how it goes; 0: none is under way
  Clock::time_point shown_;
  Bytes bytes_;
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
  const auto standing = standing_on(options_.device, *session_);
  if (!standing) return standing.error();
  if (!*standing) return Error{Code::kNotFound, "the broker lends no device " + options_.device};
  // A limit that is the tenant's whole one has room for the contexts as well.
  bytes_ = std::min(options_.bytes, Bytes{(*standing)->limit()}.minus({(*standing)->overhead()}));
  if (bytes_.is_zero()) bytes_ = options_.bytes;  // refused, with the reason
  return {};
}

std::uint64_t MemoryWait::ask_for_memory() {
  v1::SessionRequest request;
  v1::GrowRequest& grow = *request.mutable_grow();
  grow.set_wait_ms(static_cast<std::uint64_t>(left().count()));
  v1::GrowPart& part = *grow.add_parts();
  part.set_slice(slice_);
  part.set_bytes(bytes_.count);
  return session_->send(std::move(request));
}

// Once for each tick; nobody waits for the answer, as a signal may come first.
void MemoryWait::ask_how_it_goes() {
  if (explanation_ != 0 || Clock::now() < shown_ + kTick) return;
  v1::SessionRequest request;
  request.mutable_explain();
  explanation_ = session_->send(std::move(request));
}

void MemoryWait::show(const v1::SessionAnswer& answer) {
  explanation_ = 0;
  shown_ = Clock::now();
  for (const v1::Denial& denial : answer.explained().waiting()) {
    if (denial.session() != session_->opened().session()) continue;
    const std::uint64_t ahead = denial.waiters_ahead();
    progress_.show("waiting for " + to_string(bytes_) + " of " + short_uuid(options_.device) +
                       (ahead == 0 ? ", first in the line" : ", " + std::to_string(ahead) + " ahead"),
                   time_text() + ": " + obstacle_words(denial));
  }
}

void MemoryWait::show_full(const v1::Denial& denial) {
  progress_.show("waiting for " + to_string(bytes_) + " of " + short_uuid(options_.device) +
                     " within the tenant's limit",
                 time_text() + ": " + obstacle_words(denial));
}

// Memory of the tenant's own programs is the obstacle; they may return it.
bool may_come_back(const v1::Denial& denial) {
  const bool is_limit =
      denial.reason() == v1::Denial::REASON_TENANT_LIMIT || denial.reason() == v1::Denial::REASON_DEBT;
  return is_limit && denial.asked() <= denial.limiting_limit();
}

Result<Waited> MemoryWait::run() {
  if (auto opened = open(); !opened) return opened.error();
  std::uint64_t asked = ask_for_memory();
  for (milliseconds tick = kFirstTick;; tick = kTick) {
    const auto signal =
        signals_.next_for_itself_before(session_->readable(), std::min(tick, left() + kFirstTick));
    if (signal && signals_.asks_to_end(*signal)) return Waited{static_cast<int>(signal->ssi_signo)};
    if (signal && signal->ssi_signo == SIGTSTP) stop_self();
    session_->clear();
    if (const auto over = session_->over()) return *over;
    const auto answer = session_->answer_to(asked);
    if (answer && answer->has_granted()) return Waited{};
    if (answer) {
      const v1::Denial& denial = answer->failed().denial();
      if (!may_come_back(denial) || left().count() == 0) return error_of(answer->failed());
      show_full(denial);
      asked = 0;  // again at the next tick
    } else if (asked == 0) {
      asked = ask_for_memory();
    } else if (const auto explained = session_->answer_to(explanation_)) {
      show(*explained);
    } else {
      ask_how_it_goes();
    }
  }
}

constexpr milliseconds kLookEvery{1000};

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

  const RoomWaitOptions& options_;
  Monitor monitor_;
  std::unique_ptr<BrokerSession> session_;
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
  const auto standing = standing_on(options_.device, *session_);
  if (!standing) return standing.error();
  if (!*standing) return std::string();
  const Bytes limit{(*standing)->limit()};
  const Bytes charged{(*standing)->charged()};
  if (options_.bytes > limit) {
    return Error{Code::kInvalidArgument, to_string(options_.bytes) + " are more than tenant " +
                                             session_->opened().tenant() + " may have: its limit is " +
                                             to_string(limit)};
  }
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
  auto words = obstacle_of_device();
  if (words && words->empty()) words = obstacle_of_tenant();
  if (!words || !words->empty()) return words;
  const auto before = ahead();
  if (!before) return before.error();
  return *before == 0 ? std::string() : std::to_string(*before) + " ahead in the line";
}

Result<Waited> RoomWait::run(const Signals& signals, Progress& progress) {
  for (;;) {
    auto words = obstacle();
    if (!words) return words.error();
    if (words->empty()) return Waited{{}, std::move(session_)};
    const auto left = std::chrono::ceil<milliseconds>(options_.until - Clock::now());
    if (left.count() <= 0) {
      const bool waited = options_.wait.count() > 0;
      return Error{waited ? Code::kDeadlineExceeded : Code::kResourceExhausted,
                   to_string(options_.bytes) + " cannot be reserved: " + *words +
                       (waited ? "; waited " + span_text(options_.wait) : "; --wait waits for it")};
    }
    progress.show(
        "waiting for " + to_string(options_.bytes) + " of " + short_uuid(options_.device) + ": " + *words,
        "; " + span_text(std::max(milliseconds(0), options_.wait - left)));
    const auto signal = signals.next_for_itself_before(-1, std::min(kLookEvery, left));
    if (signal && signals.asks_to_end(*signal)) return Waited{static_cast<int>(signal->ssi_signo), nullptr};
    if (signal && signal->ssi_signo == SIGTSTP) stop_self();
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
