#include "client/shim/memory/session/messages.h"

#include <unistd.h>

#include <string>

#include "base/thread_guards.h"

namespace gpumem::shim {

void say(std::string_view text) {
  std::string line("gpumem: ");
  line += text;
  line += '\n';
  const NotCancelled whole;
  const NoPipeSignal no_signal;
  // Nothing is left to do where standard error takes no line.
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

bool RefusalMessages::tell(std::string_view text, Clock::time_point now) {
  Clock::rep last = last_.load();
  const Clock::rep ticks = now.time_since_epoch().count();
  const bool is_soon = last != kNever && ticks - last < Clock::duration(kPause).count();
  if (is_soon || !last_.compare_exchange_strong(last, ticks)) {
    left_out_.fetch_add(1);
    return false;
  }
  std::string line(text);
  if (const unsigned more = left_out_.exchange(0); more != 0)
    line += " (" + std::to_string(more) + " more refusals since the last such line)";
  say(line);
  return true;
}

}  // namespace gpumem::shim
