#include "client/process/signal_watch.h"

#include <array>
#include <atomic>
#include <csignal>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "client/process/fork_guard.h"

namespace gpumem::client {
namespace {

using Action = struct sigaction;

/// A handler of the program's, and those that it had before: a handler that was replaced may still run.
struct Handler {
  Action action;
  const Handler* before;
};

struct Signal {
  int number;
  const char* name;
  std::atomic<const Handler*> latest{nullptr};
};

// Read by handlers of signals.
constinit std::array<Signal, 4> signals{
    {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGQUIT, "SIGQUIT"}}};
constinit std::atomic<std::uint64_t> arrivals{0};  ///< how many; in the lowest byte the number of the last

constinit thread_local const SignalWatch* innermost = nullptr;

Signal& signal_of(int number) {
  for (Signal& signal : signals)
    if (signal.number == number) return signal;
  return signals.front();  // never: stand_in() is set for these signals alone
}

void stand_in(int number, siginfo_t* info, void* context) {
  std::uint64_t before = arrivals.load();
  while (!arrivals.compare_exchange_weak(before,
                                         (((before >> 8) + 1) << 8) | static_cast<std::uint64_t>(number))) {
  }
  const Action& theirs = signal_of(number).latest.load()->action;
  if ((theirs.sa_flags & SA_SIGINFO) != 0)
    theirs.sa_sigaction(number, info, context);
  else
    theirs.sa_handler(number);
}

bool is_function(const Action& action) {
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}
bool is_stand_in(const Action& action) { return action.sa_sigaction == stand_in; }
bool is_same(const Action& one, const Action& other) {
  return one.sa_sigaction == other.sa_sigaction &&
         (one.sa_flags & SA_SIGINFO) == (other.sa_flags & SA_SIGINFO);
}

/// Makes `action` the latest. A program has few handlers, and each is kept once.
void remember(Signal& signal, const Action& action) {
  const Handler* const latest = signal.latest.load();
  if (latest != nullptr && is_same(latest->action, action)) return;
  signal.latest.store(new Handler{action, latest});
}

void put_in_front(Signal& signal) {
  Action theirs{};
  if (::sigaction(signal.number, nullptr, &theirs) != 0 || !is_function(theirs)) return;
  if (!is_stand_in(theirs)) remember(signal, theirs);
  Action ours = theirs;
  ours.sa_sigaction = stand_in;
  ours.sa_flags |= SA_SIGINFO;
  Action replaced{};
  ::sigaction(signal.number, &ours, &replaced);
  // The program has set another action just now: that one stays, and its signal ends no wait.
  if (!is_same(replaced, theirs)) ::sigaction(signal.number, &replaced, nullptr);
}

// Flags and mask are as the program has set them last (siginterrupt()).
void take_away(Signal& signal) {
  Action present{};
  if (::sigaction(signal.number, nullptr, &present) != 0 || !is_stand_in(present)) return;
  const Action& known = signal.latest.load()->action;
  Action theirs = present;
  theirs.sa_sigaction = known.sa_sigaction;
  theirs.sa_flags = (present.sa_flags & ~SA_SIGINFO) | (known.sa_flags & SA_SIGINFO);
  Action replaced{};
  ::sigaction(signal.number, &theirs, &replaced);
  if (!is_stand_in(replaced)) ::sigaction(signal.number, &replaced, nullptr);
}

/// How many watches this process has.
class Watches : public OfProcess {
 public:
  static Watches& get() {
    static std::atomic<Watches*> latest{nullptr};
    return this_process(latest, [](const Watches*) { return std::make_unique<Watches>(); });
  }
  void begin() {
    const MutexLock lock(mutex_);
    if (count_++ != 0) return;
    for (Signal& signal : signals) put_in_front(signal);
  }
  void end() {
    const MutexLock lock(mutex_);
    if (count_ == 0 || --count_ != 0) return;
    for (Signal& signal : signals) take_away(signal);
  }

 private:
  Mutex mutex_;
  int count_ GPUMEM_GUARDED_BY(mutex_) = 0;
};

}  // namespace

SignalWatch::SignalWatch() : outer_(innermost), begun_(outer_ != nullptr ? outer_->begun_ : arrivals.load()) {
  innermost = this;
  Watches::get().begin();
}

SignalWatch::~SignalWatch() {
  Watches::get().end();
  innermost = outer_;
}

int SignalWatch::seen() const {
  constexpr std::uint64_t kNumber = 0xff;
  const std::uint64_t now = arrivals.load();
  return now == begun_ ? 0 : static_cast<int>(now & kNumber);
}

Error SignalWatch::error() const {
  return {Code::kCancelled, std::string("the wait was ended by a signal, ") + signal_of(seen()).name};
}

}  // namespace gpumem::client
