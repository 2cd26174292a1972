#include "client/process/background_task.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread_guards.h"
#include "client/process/fork_guard.h"

namespace gpumem::client {

using Clock = std::chrono::steady_clock;

struct BackgroundTask::Task {
  When when;
  std::function<bool()> work;
  Clock::time_point due = Clock::time_point::max();
  std::thread::id worker{};  ///< that does the work now

  /// There is nothing any more that it waits for.
  bool is_over() const { return when.period.count() == 0 && when.readable == nullptr; }
};

namespace {

using Task = BackgroundTask::Task;

constexpr std::chrono::seconds kDeafPeriod{1};

/// The thread and its tasks, in one process.
class BackgroundThread : public OfProcess {
 public:
  /// This process's. A forked child leaves its parent's as it was: it may have been locked.
  static BackgroundThread& get();

  Result<void> add(const std::shared_ptr<Task>& task);
  void remove(Task& task);
  bool is_worker_of(const Task& task) {
    const std::scoped_lock lock(mutex_);
    return task.worker == std::this_thread::get_id();
  }

 private:
  /// One thread, from its start to its end. It has descriptors of its own, because the next one may start
  /// before it has heard that it is to end. They are a pair of sockets: if the program closes them, the
  /// thread is woken by that.
  struct Life {
    std::thread thread;
    OwnFd woken;  ///< readable when there is something new
    OwnFd waker;
    bool over = false;
  };

  Result<void> start();
  void run(const std::shared_ptr<Life>& life);
  void wait(Life& life, std::unique_lock<std::mutex>& lock);
  void work(const std::shared_ptr<Task>& task, std::unique_lock<std::mutex>& lock);
  bool has(const Task& task) const {
    return std::ranges::any_of(tasks_, [&](const auto& one) { return one.get() == &task; });
  }
  static Result<void> make_waker(Life& life);
  /// `mutex_` is held: the thread may make another waker.
  static void wake(const Life& life) {
    if (life.waker.is_intact()) (void)::send(life.waker.get(), "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  std::mutex mutex_;
  std::condition_variable done_;  ///< a task's work
  std::vector<std::shared_ptr<Task>> tasks_;
  std::shared_ptr<Life> life_;  ///< null: no thread
  bool is_working_ = false;     ///< the thread runs the work of a task
  int removers_ = 0;            ///< threads that wait for a task's work to end
};

BackgroundThread& BackgroundThread::get() {
  static std::atomic<BackgroundThread*> latest{nullptr};
  return this_process(latest, [](const BackgroundThread*) { return std::make_unique<BackgroundThread>(); });
}

Result<void> BackgroundThread::add(const std::shared_ptr<Task>& task) {
  const std::scoped_lock lock(mutex_);
  if (has(*task) || task->is_over()) return {};
  const bool is_running = life_ != nullptr;
  if (!is_running) {
    if (auto started = start(); !started) return started;
  }
  if (task->when.period.count() != 0) task->due = Clock::now() + task->when.period;
  tasks_.push_back(task);
  if (is_running) wake(*life_);
  return {};
}

Result<void> BackgroundThread::start() {
  auto life = std::make_shared<Life>();
  if (auto made = make_waker(*life); !made) return made;
  const SignalsBlocked in_the_thread;
  try {
    life->thread = std::thread([this, life] { run(life); });
  } catch (const std::system_error& failed) {
    return Error{Code::kResourceExhausted,
                 std::string("cannot start the library's background thread: ") + failed.what()};
  }
  life_ = std::move(life);
  return {};
}

Result<void> BackgroundThread::make_waker(Life& life) {
  OwnFd woken, waker;
  {
    const NoFork no_fork;
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
      return errno_error(errno, "cannot make a pair of sockets");
    woken = OwnFd(no_fork, above_standard_streams(UniqueFd(ends[0])));
    waker = OwnFd(no_fork, above_standard_streams(UniqueFd(ends[1])));
  }
  life.woken = std::move(woken);
  life.waker = std::move(waker);
  return {};
}

void BackgroundThread::remove(Task& task) {
  std::shared_ptr<Life> ended;
  {
    std::unique_lock lock(mutex_);
    if (std::erase_if(tasks_, [&](const auto& one) { return one.get() == &task; }) == 0) return;
    if (task.worker == std::this_thread::get_id()) return;
    ++removers_;
    done_.wait(lock, [&] { return task.worker == std::thread::id(); });
    --removers_;
    if (!tasks_.empty() || is_working_ || life_ == nullptr) return;
    ended.swap(life_);
    ended->over = true;
    wake(*ended);
  }
  ended->thread.join();
}

void BackgroundThread::run(const std::shared_ptr<Life>& life) {
  ::pthread_setname_np(::pthread_self(), "gpumem");
  std::unique_lock lock(mutex_);
  while (!life->over) {
    wait(*life, lock);
    if (life->over) return;
    const auto now = Clock::now();
    for (const auto& task : std::vector(tasks_)) {
      if (task->due <= now && has(*task)) work(task, lock);
    }
    if (!tasks_.empty() || removers_ != 0 || life->over) continue;
    life->over = true;  // the last task has ended here, and nobody waits for this thread
    life->thread.detach();
    life_.reset();
  }
}

// Waits until something is due.
void BackgroundThread::wait(Life& life, std::unique_lock<std::mutex>& lock) {
  auto due = Clock::time_point::max();
  // What the program has closed is made anew. Without it, the thread looks now and then.
  const bool is_heard = (life.woken.is_intact() && life.waker.is_intact()) || make_waker(life);
  if (!is_heard) due = Clock::now() + kDeafPeriod;
  std::vector<pollfd> polled{{is_heard ? life.woken.get() : -1, POLLIN, 0}};
  const std::vector waiting(tasks_);
  for (const auto& task : waiting) {
    const OwnFd* const readable = task->when.readable;
    const bool is_intact = readable != nullptr && readable->is_intact();
    if (readable != nullptr && !is_intact) task->due = std::min(task->due, Clock::now());
    polled.push_back({is_intact ? readable->get() : -1, POLLIN, 0});
    due = std::min(due, task->due);
  }
  int timeout = -1;
  if (due != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now());
    timeout = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
  }
  lock.unlock();
  (void)::poll(polled.data(), polled.size(), timeout);
  lock.lock();
  std::array<char, 64> wakes{};
  if (polled[0].revents != 0 && life.woken.is_intact())
    (void)::recv(life.woken.get(), wakes.data(), wakes.size(), MSG_DONTWAIT);
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (polled[i + 1].revents != 0) waiting[i]->due = Clock::time_point::min();
  }
}

void BackgroundThread::work(const std::shared_ptr<Task>& task, std::unique_lock<std::mutex>& lock) {
  is_working_ = true;
  task->worker = std::this_thread::get_id();
  const auto period = task->when.period;
  task->due = period.count() == 0 ? Clock::time_point::max() : Clock::now() + period;
  lock.unlock();
  const bool is_readable = task->work();
  lock.lock();
  if (!is_readable) task->when.readable = nullptr;
  if (task->is_over()) std::erase(tasks_, task);
  task->worker = {};
  is_working_ = false;
  done_.notify_all();
}

}  // namespace

BackgroundTask::BackgroundTask(When when, std::function<bool()> work)
    : task_(std::make_shared<Task>(Task{.when = when, .work = std::move(work)})) {}

Result<void> BackgroundTask::begin() { return BackgroundThread::get().add(task_); }

void BackgroundTask::end() { BackgroundThread::get().remove(*task_); }

bool BackgroundTask::is_caller() const { return BackgroundThread::get().is_worker_of(*task_); }

}  // namespace gpumem::client
