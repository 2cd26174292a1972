#include "client/cli/run/room.h"

#include <algorithm>

#include "client/cli/monitor.h"
#include "client/cli/table.h"
#include "client/cli/time_text.h"
#include "client/cli/views.h"

namespace gpumem::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLookEvery{1000};

std::string waiting_label(Bytes bytes) {
  return std::string(kReserveLabel) + ", waits for " + to_string(bytes);
}

class RoomSearch {
 public:
  RoomSearch(const RoomOptions& options, Monitor monitor, std::unique_ptr<BrokerSession> session)
      : options_(options), monitor_(std::move(monitor)), session_(std::move(session)) {}

  Result<Room> run(const Signals& signals, Progress& progress);

 private:
  // The present obstacle, in words; empty: there is none.
  Result<std::string> obstacle();
  Result<std::string> obstacle_of_device();
  Result<std::string> obstacle_of_tenant();
  Result<std::uint64_t> ahead();

  const RoomOptions& options_;
  Monitor monitor_;
  std::unique_ptr<BrokerSession> session_;
};

Result<std::string> RoomSearch::obstacle_of_device() {
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

Result<std::string> RoomSearch::obstacle_of_tenant() {
  v1::SessionRequest request;
  request.mutable_explain();
  auto answer = session_->ask(std::move(request));
  if (!answer) return answer.error();
  for (const v1::Standing& one : answer->explained().devices()) {
    if (one.device() != options_.device) continue;
    if (options_.bytes > Bytes{one.limit()}) {
      return Error{Code::kInvalidArgument, to_string(options_.bytes) + " are more than tenant " +
                                               session_->opened().tenant() + " may have: its limit is " +
                                               size_text(one.limit())};
    }
    const bool fits = options_.bytes <= Bytes{one.limit()}.minus({one.charged()});
    return fits ? std::string()
                : "of the tenant's limit of " + size_text(one.limit()) + ", " + size_text(one.charged()) +
                      " are charged";
  }
  return std::string();
}

// Reservations of the tenant that wait, and have begun to before this one.
Result<std::uint64_t> RoomSearch::ahead() {
  auto sessions = monitor_.sessions();
  if (!sessions) return sessions.error();
  const std::string waits = std::string(kReserveLabel) + ", waits for ";
  return static_cast<std::uint64_t>(std::ranges::count_if(sessions->sessions(), [&](const auto& one) {
    return one.tenant() == session_->opened().tenant() && one.id() < session_->opened().session() &&
           one.label().starts_with(waits) && !one.ended();
  }));
}

Result<std::string> RoomSearch::obstacle() {
  auto words = obstacle_of_device();
  if (words && words->empty()) words = obstacle_of_tenant();
  if (!words || !words->empty()) return words;
  const auto before = ahead();
  if (!before) return before.error();
  return *before == 0 ? std::string() : std::to_string(*before) + " ahead in the line";
}

Result<Room> RoomSearch::run(const Signals& signals, Progress& progress) {
  for (;;) {
    auto words = obstacle();
    if (!words) return words.error();
    if (words->empty()) return Room{{}, std::move(session_)};
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
    if (signal && signals.asks_to_end(*signal)) return Room{static_cast<int>(signal->ssi_signo), nullptr};
    if (signal && signal->ssi_signo == SIGTSTP) stop_self();
  }
}

}  // namespace

Result<Room> wait_for_room(const RoomOptions& options, const Signals& signals, Progress& progress) {
  auto monitor = Monitor::connect(options.runtime_folder);
  if (!monitor) return monitor.error();
  auto session = BrokerSession::open(options.runtime_folder, waiting_label(options.bytes));
  if (!session) return session.error();
  auto room = RoomSearch(options, std::move(*monitor), std::move(*session)).run(signals, progress);
  progress.clear();
  return room;
}

}  // namespace gpumem::cli
