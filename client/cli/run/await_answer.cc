#include "client/cli/run/await_answer.h"

#include <poll.h>

namespace gpumem::cli {
namespace {

using Clock = std::chrono::steady_clock;

bool can_be_read(int fd) {
  pollfd polled{fd, POLLIN, 0};
  return ::poll(&polled, 1, 0) == 1;
}

}  // namespace

bool await_answer(const UniqueFd& done, const Signals& signals, std::chrono::milliseconds patience) {
  for (const auto end = Clock::now() + patience; !can_be_read(done.get());) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return false;
    const auto signal = signals.next_for_itself_before(done.get(), left);
    if (!signal) continue;
    if (signals.asks_to_end(*signal)) die_by(static_cast<int>(signal->ssi_signo));
    if (signal->ssi_signo == SIGTSTP) stop_self();
  }
  return true;
}

}  // namespace gpumem::cli
