#include "daemon/kubernetes/plugin/reconcile_loop.h"

#include <algorithm>

#include "base/log.h"
#include "base/thread_guards.h"

namespace gpumem::kubernetes {
namespace {

constexpr std::chrono::milliseconds kFirstRetry{1000};

}  // namespace

ReconcileLoop::ReconcileLoop(std::vector<Task> tasks) {
  for (Task& task : tasks)
    entries_.push_back({.task = std::move(task), .due = Clock::now(), .pause = {}, .failure = {}});
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { loop(); });
}

ReconcileLoop::~ReconcileLoop() {
  stop();
  thread_.join();
}

void ReconcileLoop::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

bool ReconcileLoop::is_stopping() {
  const MutexLock lock(mutex_);
  return stopping_;
}

void ReconcileLoop::wake() {
  {
    const MutexLock lock(mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

void ReconcileLoop::loop() {
  while (await_due()) {
    for (Entry& entry : entries_) {
      if (entry.due <= Clock::now()) run(entry);
    }
  }
}

// Whether to go on.
bool ReconcileLoop::await_due() {
  const auto first = std::min_element(entries_.begin(), entries_.end(),
                                      [](const Entry& a, const Entry& b) { return a.due < b.due; });
  const MutexLock lock(mutex_);
  while (!stopping_ && !woken_ && Clock::now() < first->due) changed_.wait_until(mutex_, first->due);
  if (woken_) {
    for (Entry& entry : entries_) entry.due = {};
  }
  woken_ = false;
  return !stopping_;
}

void ReconcileLoop::run(Entry& entry) {
  auto done = entry.task.run();
  if (!done && is_stopping()) return;
  if (done) {
    if (!entry.failure.empty()) spdlog::info("{}: works again", entry.task.name);
    entry.failure.clear();
    entry.pause = {};
    entry.due = Clock::now() + entry.task.period;
    return;
  }
  if (done.error().message != entry.failure) spdlog::error("{}: {}", entry.task.name, done.error().message);
  entry.failure = done.error().message;
  entry.pause = std::min(std::max(2 * entry.pause, kFirstRetry), std::max(entry.task.period, kFirstRetry));
  entry.due = Clock::now() + entry.pause;
}

}  // namespace gpumem::kubernetes
