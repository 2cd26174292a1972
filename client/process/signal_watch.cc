#include "client/process/signal_watch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "client/process/fork_guard.h"

namespace gpumem::client {
namespace {

using Action = struct sigaction;

/// Handlers of a signal that one process can have; another one's signals end no wait.
constexpr std::size_t kPlaces = 16;

struct Signal {
  int number;
  const char* name;
  /// The program's handlers that a function of this library has stood in front of; none is freed. Each has a
  /// function of its own: a program that finds one, and calls or sets it later, means the handler behind it.
  std::array<std::atomic<const Action*>, kPlaces> handlers{};
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

template <std::size_t kPlace>
void stand_in(int number, siginfo_t* info, void* context) {
  std::uint64_t before = arrivals.load();
  while (!arrivals.compare_exchange_weak(before,
                                         (((before >> 8) + 1) << 8) | static_cast<std::uint64_t>(number))) {
  }
  const Action& theirs = *signal_of(number).handlers[kPlace].load();
  if ((theirs.sa_flags & SA_SIGINFO) != 0)
    theirs.sa_sigaction(number, info, context);
  else
    theirs.sa_handler(number);
}

constexpr auto kStandIns = []<std::size_t... kPlace>(std::index_sequence<kPlace...>) {
  return std::array{&stand_in<kPlace>...};
}
(std::make_index_sequence<kPlaces>{});

bool is_function(const Action& action) {
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}
bool is_same(const Action& one, const Action& other) {
  return one.sa_sigaction == other.sa_sigaction &&
         (one.sa_flags & SA_SIGINFO) == (other.sa_flags & SA_SIGINFO);
}

/// The place of the handler that `action`, one of kStandIns, stands in front of. None: it is the program's.
std::optional<std::size_t> place_behind(const Action& action) {
  const auto found = std::ranges::find(kStandIns, action.sa_sigaction);
  if (found == kStandIns.end()) return std::nullopt;
  return static_cast<std::size_t>(found - kStandIns.begin());
}

/// The place that the handler has, or a new one. None: all are taken.
std::optional<std::size_t> place_of(Signal& signal, const Action& handler) {
  for (std::size_t place = 0; place < kPlaces; ++place) {
    const Action* const known = signal.handlers[place].load();
    if (known == nullptr) signal.handlers[place].store(new Action(handler));
    if (known == nullptr || is_same(*known, handler)) return place;
  }
  return std::nullopt;
}

void put_in_front(Signal& signal) {
  Action theirs{};
  if (::sigaction(signal.number, nullptr, &theirs) != 0 || !is_function(theirs) || place_behind(theirs))
    return;
  const auto place = place_of(signal, theirs);
  if (!place) return;
  Action ours = theirs;
  ours.sa_sigaction = kStandIns[*place];
  ours.sa_flags |= SA_SIGINFO;
  Action replaced{};
  ::sigaction(signal.number, &ours, &replaced);
  // The program has set another action just now: that one stays, and its signal ends no wait.
  if (!is_same(replaced, theirs)) ::sigaction(signal.number, &replaced, nullptr);
}

// Flags and mask are as the program has set them last (siginterrupt()).
void take_away(Signal& signal) {
  Action present{};
  if (::sigaction(signal.number, nullptr, &present) != 0) return;
  const auto place = place_behind(present);
  if (!place) return;
  const Action& known = *signal.handlers[*place].load();
  Action theirs = present;
  theirs.sa_sigaction = known.sa_sigaction;
  theirs.sa_flags = (present.sa_flags & ~SA_SIGINFO) | (known.sa_flags & SA_SIGINFO);
  Action replaced{};
  ::sigaction(signal.number, &theirs, &replaced);
  if (!is_same(replaced, present)) ::sigaction(signal.number, &replaced, nullptr);
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
