#include "client/cli/run/place.h"

#include <algorithm>
#include <memory>

#include "client/cli/run/broker_session.h"
#include "client/cli/time_text.h"
#include "client/cli/views.h"

namespace gpumem::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTick{1000};
constexpr milliseconds kFirstTick{200};  // most requests are granted before it

class Waiting {
 public:
  Waiting(const PlaceOptions& options, const Signals& signals, Progress& progress)
      : options_(options), signals_(signals), progress_(progress), end_(Clock::now() + options.wait) {}

  Result<Place> run();

 private:
  Result<void> open();
  Result<v1::Standing> standing();
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

  const PlaceOptions& options_;
  const Signals& signals_;
  Progress& progress_;
  const Clock::time_point end_;
  std::unique_ptr<BrokerSession> session_;
  std::uint64_t slice_ = 0;
  std::uint64_t explanation_ = 0;  // the request whose answer tells how it goes; 0: none is under way
  Clock::time_point shown_;
  Bytes bytes_;
};

Result<void> Waiting::open() {
  auto session = BrokerSession::open(options_.runtime_folder, options_.label);
  if (!session) return session.error();
  session_ = std::move(*session);
  v1::SessionRequest request;
  request.mutable_open_slice()->set_device(options_.device);
  request.mutable_open_slice()->set_label(options_.label);
  auto opened = session_->ask(std::move(request));
  if (!opened) return opened.error();
  slice_ = opened->slice_opened().slice();
  auto known = standing();
  if (!known) return known.error();
  // A limit that is the tenant's whole one has room for the contexts as well.
  bytes_ = std::min(options_.bytes, Bytes{known->limit()}.minus({known->overhead()}));
  if (bytes_.is_zero()) bytes_ = options_.bytes;  // refused, with the reason
  return {};
}

Result<v1::Standing> Waiting::standing() {
  v1::SessionRequest request;
  request.mutable_explain();
  auto answer = session_->ask(std::move(request));
  if (!answer) return answer.error();
  for (const v1::Standing& one : answer->explained().devices()) {
    if (one.device() == options_.device) return one;
  }
  return Error{Code::kNotFound, "the broker lends no device " + options_.device};
}

std::uint64_t Waiting::ask_for_memory() {
  v1::SessionRequest request;
  v1::GrowRequest& grow = *request.mutable_grow();
  grow.set_wait_ms(static_cast<std::uint64_t>(left().count()));
  v1::GrowPart& part = *grow.add_parts();
  part.set_slice(slice_);
  part.set_bytes(bytes_.count);
  return session_->send(std::move(request));
}

// Once for each tick; nobody waits for the answer, as a signal may come first.
void Waiting::ask_how_it_goes() {
  if (explanation_ != 0 || Clock::now() < shown_ + kTick) return;
  v1::SessionRequest request;
  request.mutable_explain();
  explanation_ = session_->send(std::move(request));
}

void Waiting::show(const v1::SessionAnswer& answer) {
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

void Waiting::show_full(const v1::Denial& denial) {
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

Result<Place> Waiting::run() {
  if (auto opened = open(); !opened) return opened.error();
  std::uint64_t asked = ask_for_memory();
  for (milliseconds tick = kFirstTick;; tick = kTick) {
    const auto signal =
        signals_.next_for_itself_before(session_->readable(), std::min(tick, left() + kFirstTick));
    if (signal && signals_.asks_to_end(*signal)) return Place{static_cast<int>(signal->ssi_signo)};
    if (signal && signal->ssi_signo == SIGTSTP) stop_self();
    session_->clear();
    if (const auto over = session_->over()) return *over;
    const auto answer = session_->answer_to(asked);
    if (answer && answer->has_granted()) return Place{};
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

}  // namespace

Result<Place> wait_for_place(const PlaceOptions& options, const Signals& signals, Progress& progress) {
  auto place = Waiting(options, signals, progress).run();
  progress.clear();
  return place;
}

}  // namespace gpumem::cli
