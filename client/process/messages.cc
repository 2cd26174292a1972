#include "client/process/messages.h"

#include <poll.h>
#include <unistd.h>

#include <string>

#include "base/text/time_format.h"
#include "base/thread_guards.h"

namespace gpumem::client {
namespace {

// Whether standard error takes a line at once. The library's thread must not wait for a reader.
bool takes_lines() {
  pollfd error{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&error, 1, 0) == 1 && (error.revents & POLLOUT) != 0;
}

}  // namespace

void say(std::string_view text) {
  std::string line("gpumem: ");
  line += text;
  line += '\n';
  const NotCancelled whole;
  const NoPipeSignal no_signal;
  // Nothing is left to do where standard error takes no line.
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

bool Pace::begin(Clock::time_point now) {
  Clock::rep last = last_.load();
  const Clock::rep ticks = now.time_since_epoch().count();
  const bool is_soon = last != kNever && ticks - last < Clock::duration(kPause).count();
  return !is_soon && last_.compare_exchange_strong(last, ticks);
}

bool RefusalMessages::tell(std::string_view text, Clock::time_point now) {
  if (!pace_.begin(now)) {
    left_out_.fetch_add(1);
    return false;
  }
  std::string line(text);
  if (const unsigned more = left_out_.exchange(0); more != 0)
    line += " (" + std::to_string(more) + " more refusals since the last such line)";
  say(line);
  return true;
}

WaitNotice::WaitNotice(Pace& pace, std::string text, Clock::time_point begun)
    : pace_(pace),
      text_(std::move(text)),
      begun_(begun),
      task_({.period = kShort}, [this] { return tell(); }) {
  const NotCancelled whole;
  (void)task_.begin();  // without a thread, nothing is told
}

WaitNotice::~WaitNotice() {
  const NotCancelled whole;
  task_.end();
  if (!is_told_) return;
  say("waited " + span_text(std::chrono::floor<std::chrono::milliseconds>(Clock::now() - begun_)));
}

bool WaitNotice::tell() {
  if (!is_told_ && takes_lines() && pace_.begin(Clock::now())) {
    is_told_ = true;
    say(text_);
  }
  return true;
}

}  // namespace gpumem::client
