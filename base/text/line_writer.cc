#include "base/text/line_writer.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <deque>
#include <string_view>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace gpumem {

struct LineWriter::State {
  State(int descriptor, std::function<std::string(std::size_t)> words)
      : fd(descriptor), dropped_words(std::move(words)) {}

  void push(std::string line);
  void run();
  bool next(std::string& line);
  bool write_out(std::string_view text);
  bool is_stopping();

  const int fd;
  const std::function<std::string(std::size_t)> dropped_words;
  Mutex mutex;
  Condition wake;
  Condition written;
  std::deque<std::string> lines GPUMEM_GUARDED_BY(mutex);
  std::size_t bytes GPUMEM_GUARDED_BY(mutex) = 0;
  std::size_t dropped GPUMEM_GUARDED_BY(mutex) = 0;
  bool writing GPUMEM_GUARDED_BY(mutex) = false;
  bool stopping GPUMEM_GUARDED_BY(mutex) = false;
  bool ended GPUMEM_GUARDED_BY(mutex) = false;
};

void LineWriter::State::push(std::string line) {
  {
    const MutexLock lock(mutex);
    // While some are dropped all are, until their number is written: lines stay in their order.
    if (dropped != 0 || bytes + line.size() > kMostQueued) {
      ++dropped;
      return;
    }
    bytes += line.size();
    lines.push_back(std::move(line));
  }
  wake.notify_one();
}

// The next line to write; false once the writer is to stop and there is none.
bool LineWriter::State::next(std::string& line) {
  std::size_t count = 0;
  {
    const MutexLock lock(mutex);
    writing = false;
    if (lines.empty() && dropped == 0) written.notify_all();
    while (lines.empty() && dropped == 0 && !stopping) wake.wait(mutex);
    if (lines.empty() && dropped == 0) return false;
    writing = true;
    if (!lines.empty()) {
      line = std::move(lines.front());
      lines.pop_front();
      bytes -= line.size();
      return true;
    }
    count = std::exchange(dropped, 0);
  }
  line = dropped_words(count);
  return true;
}

bool LineWriter::State::is_stopping() {
  const MutexLock lock(mutex);
  return stopping;
}

// A pipe that poll() calls writable takes PIPE_BUF bytes without blocking. The descriptor cannot be made
// non-blocking: others share it. False: the writer is to stop, and nobody reads.
bool LineWriter::State::write_out(std::string_view text) {
  constexpr int kPause = 50;  // milliseconds between two looks whether to stop
  while (!text.empty()) {
    pollfd out{fd, POLLOUT, 0};
    const int ready = ::poll(&out, 1, kPause);
    if (ready == 0 && is_stopping()) return false;
    if (ready <= 0) continue;
    const ssize_t count = ::write(fd, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return true;  // nobody will ever read it: this line is lost
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

void LineWriter::State::run() {
  for (std::string line; next(line);) {
    if (!write_out(line)) break;
  }
  const MutexLock lock(mutex);
  ended = true;
  writing = false;
  written.notify_all();
}

LineWriter::LineWriter(int fd, std::function<std::string(std::size_t count)> dropped)
    : state_(std::make_shared<State>(fd, std::move(dropped))) {
  // The threads of a program that waits for signals must not take them from it.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_] { state->run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LineWriter::~LineWriter() {
  flush(kExitPatience);
  const MutexLock lock(state_->mutex);
  state_->stopping = true;
  state_->wake.notify_one();
}

void LineWriter::write(std::string line) { state_->push(std::move(line)); }

bool LineWriter::flush(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const MutexLock lock(state_->mutex);
  const auto is_busy = [&]() GPUMEM_REQUIRES(state_->mutex) {
    return !state_->ended && (state_->writing || !state_->lines.empty() || state_->dropped != 0);
  };
  while (is_busy() && std::chrono::steady_clock::now() < deadline)
    state_->written.wait_until(state_->mutex, deadline);
  return !is_busy();
}

}  // namespace gpumem
