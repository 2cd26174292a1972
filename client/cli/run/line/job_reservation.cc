#include "client/cli/run/line/job_reservation.h"

#include <sys/eventfd.h>
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

#include "client/cli/monitor/monitor.h"
#include "client/cli/run/line/backoff.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"

namespace gpumem::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kRedraw{1000};  // how often the terminal's line is drawn
/// Most requests are granted before the first question why one waits.
constexpr milliseconds kFirstQuestion{200};

class JobReservation {
 public:
  JobReservation(Session& session, const JobReservationOptions& options, const Signals& signals,
                 Progress& progress)
      : session_(session), options_(options), signals_(signals), progress_(progress) {}

  Result<std::optional<int>> run();

 private:
  std::jthread start(void (JobReservation::*work)(const std::stop_token&)) {
    return std::jthread([this, work](const std::stop_token& stop) { (this->*work)(stop); });
  }
  void reserve(const std::stop_token& stop);
  void ask_why(const std::stop_token& stop);
  void tell(const Result<v1::ExplainResponse>& explained);
  void show(const v1::Denial& denial);
  void draw();
  std::string shortfall_text() const;
  std::string amount_text(std::uint64_t bytes) const { return size_text(bytes) + " of " + options_.name; }

  Session& session_;
  const JobReservationOptions& options_;
  const Signals& signals_;
  Progress& progress_;
  const Clock::time_point begun_ = Clock::now();
  const UniqueFd news_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex_;
  std::condition_variable_any never_;  // nobody tells: the threads wait for their pauses, or to be stopped
  std::optional<Result<void>> answer_;
  std::string shortfall_;
  std::string state_, obstacle_;  // to be shown; empty: nothing is known yet
};

void JobReservation::reserve(const std::stop_token& stop) {
  auto reserved = session_.reserve_for_job(options_.device, options_.bytes, options_.wait, stop);
  std::string shortfall = reserved ? shortfall_text() : "";
  const std::scoped_lock lock(mutex_);
  answer_ = std::move(reserved);
  shortfall_ = std::move(shortfall);
  ::eventfd_write(news_.get(), 1);
}

// Says that less than what was asked for is reserved, and why. Empty: all of it is, or the broker does not
// say.
std::string JobReservation::shortfall_text() const {
  const auto monitor = Monitor::connect(options_.runtime_folder);
  const auto jobs = monitor ? monitor->jobs() : Result<v1::ListJobsResponse>(monitor.error());
  if (!jobs) return {};
  const auto job = std::ranges::find(jobs->jobs(), session_.id(), &v1::JobInfo::owner);
  if (job == jobs->jobs().end()) return {};
  const auto usage = std::ranges::find(job->devices(), options_.device, &v1::JobUsage::device);
  if (usage == job->devices().end() || usage->charged() >= options_.bytes.count) return {};
  const std::string text =
      "reserved " + amount_text(usage->charged()) + ", not " + size_text(options_.bytes.count) + ": ";
  const auto tenant = usage_of(*monitor, session_.tenant(), options_.device);
  if (tenant && tenant->outside() != 0 && usage->charged() + tenant->outside() <= tenant->limit() &&
      options_.bytes.count + tenant->outside() > tenant->limit())
    return text + "contexts and declared memory have " + size_text(tenant->outside()) +
           " of the tenant's limit of " + size_text(tenant->limit());
  const std::uint64_t lacking = options_.bytes.count - usage->charged();
  if (tenant && tenant->charged() + lacking <= tenant->limit())
    return text + "the rest of the pool is guaranteed to other tenants";
  return text + "the tenant's quota allows no more";
}

// A refusal (a user has so many explanations a second) only means that the line on the terminal says less.
void JobReservation::ask_why(const std::stop_token& stop) {
  Backoff pauses(milliseconds(1000), milliseconds(16'000));
  std::optional<Monitor> monitor;
  v1::ExplainRequest request;
  request.set_session(session_.id());
  for (auto next = begun_ + kFirstQuestion;; next = pauses.next()) {
    {
      std::unique_lock lock(mutex_);
      never_.wait_until(lock, stop, next, [] { return false; });
    }
    if (stop.stop_requested()) return;
    if (!monitor) {
      if (auto connected = Monitor::connect(options_.runtime_folder)) monitor.emplace(std::move(*connected));
    }
    tell(monitor ? monitor->explain(request, stop) : Error{Code::kUnavailable, "there is no broker"});
  }
}

void JobReservation::tell(const Result<v1::ExplainResponse>& explained) {
  const std::scoped_lock lock(mutex_);
  if (!explained && state_.empty()) state_ = "waiting for " + amount_text(options_.bytes.count);
  if (explained && explained->waiting_size() > 0) show(explained->waiting(0));
  ::eventfd_write(news_.get(), 1);
}

void JobReservation::show(const v1::Denial& denial) {
  const std::uint64_t ahead = denial.waiters_ahead();
  state_ = "waiting for " + amount_text(denial.asked()) +
           (ahead == 0 ? ", first in the line" : ", " + std::to_string(ahead) + " ahead");
  obstacle_ = ": " + obstacle_words(denial);
}

void JobReservation::draw() {
  const auto waited = std::min(std::chrono::floor<milliseconds>(Clock::now() - begun_), options_.wait);
  if (!state_.empty())
    progress_.show(state_, "; " + span_text(waited) + " of " + span_text(options_.wait) + obstacle_);
}

Result<std::optional<int>> JobReservation::run() {
  std::jthread reserving;
  std::jthread asking;
  try {
    reserving = start(&JobReservation::reserve);
    asking = start(&JobReservation::ask_why);
  } catch (const std::system_error& failed) {
    return Error{Code::kResourceExhausted,
                 std::string("cannot start a thread (ulimit -u): ") + failed.what()};
  }
  for (;;) {
    const auto signal = signals_.next_for_itself_before(news_.get(), kRedraw);
    if (signal && signals_.asks_to_end(*signal)) return std::optional(static_cast<int>(signal->ssi_signo));
    if (signal && signal->ssi_signo == SIGTSTP) stop_self();
    eventfd_t count = 0;
    static_cast<void>(::eventfd_read(news_.get(), &count));
    const std::scoped_lock lock(mutex_);
    if (!answer_) {
      draw();
      continue;
    }
    if (!shortfall_.empty()) progress_.say(shortfall_);
    return *answer_ ? Result<std::optional<int>>(std::nullopt) : answer_->error();
  }
}

}  // namespace

Result<std::optional<int>> reserve_for_job(Session& session, const JobReservationOptions& options,
                                           const Signals& signals, Progress& progress) {
  auto reserved = JobReservation(session, options, signals, progress).run();
  progress.clear();
  return reserved;
}

}  // namespace gpumem::cli
