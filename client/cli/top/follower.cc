#include "client/cli/top/follower.h"

#include <sys/eventfd.h>

#include <utility>

namespace gpumem::cli::top {

// Samples that may wait for a terminal that is held up. The broker leaves others out.
constexpr std::size_t kMostKept = 4;

Follower::Follower(std::filesystem::path runtime_folder)
    : runtime_folder_(std::move(runtime_folder)),
      news_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this](const std::stop_token& stop) { work(stop); }) {}

Follower::~Follower() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  taken_.notify_all();
}

Follower::News Follower::take() {
  eventfd_t count = 0;
  static_cast<void>(::eventfd_read(news_.get(), &count));
  const MutexLock lock(mutex_);
  News news{std::exchange(kept_.samples, {}), kept_.problem};
  taken_.notify_all();
  return news;
}

bool Follower::keep(v1::Sample sample) {
  const MutexLock lock(mutex_);
  while (kept_.samples.size() >= kMostKept && !stopping_) taken_.wait(mutex_);
  kept_.problem.clear();
  kept_.samples.push_back(std::move(sample));
  ::eventfd_write(news_.get(), 1);
  return !stopping_;
}

void Follower::note(std::string problem) {
  const MutexLock lock(mutex_);
  kept_.problem = std::move(problem);
  ::eventfd_write(news_.get(), 1);
}

void Follower::work(const std::stop_token& stop) {
  keep_watching(
      runtime_folder_, stop,
      [&](const Monitor& monitor) {
        return monitor.watch([this](v1::Sample sample) { return keep(std::move(sample)); }, stop);
      },
      [this](const Result<void>& watched) {
        if (!watched) note(watched.error().message);
        return true;
      });
}

}  // namespace gpumem::cli::top
