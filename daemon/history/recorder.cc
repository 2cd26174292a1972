#include "daemon/history/recorder.h"

#include <sys/stat.h>

#include "base/log.h"

namespace gpumem::history {
namespace {

constexpr std::int64_t kSetBack = 2;  // seconds that the clock may be set back without a word

}  // namespace

std::optional<EventPosition> Recorder::open(std::chrono::nanoseconds steady, std::int64_t time) {
  if (is_doubted_.exchange(false)) store_.reset();
  if (store_ && !is_there()) {
    spdlog::error("the history was taken away from {}: a new one begins", file_.string());
    store_.reset();
  }
  if (store_) return store_->position();
  if (again_ && steady < *again_) return std::nullopt;
  auto store = Store::open(file_, most_bytes_);
  if (!store && store.error().code == Code::kFailedPrecondition && put_aside(store.error(), time))
    store = Store::open(file_, most_bytes_);
  if (!store) {
    fail(store.error(), steady, time);
    return std::nullopt;
  }
  store_ = std::move(*store);
  struct stat opened {};
  inode_ = ::stat(file_.c_str(), &opened) == 0 ? opened.st_ino : 0;
  again_.reset();
  return store_->position();
}

bool Recorder::record(const Sample& sample) {
  if (!open(sample.steady, sample.time)) return false;
  look_at_clock(sample);
  if (auto added = store_->add(sample); !added) {
    fail(added.error(), sample.steady, sample.time);
    return false;
  }
  if (!problem().empty()) spdlog::info("the history is written again");
  set_problem("");
  return true;
}

void Recorder::fail(const Error& error, std::chrono::nanoseconds steady, std::int64_t time) {
  store_.reset();
  again_ = steady + kPause;
  if (error.code == Code::kFailedPrecondition && put_aside(error, time)) return again_.reset();
  if (problem().empty())
    spdlog::error("the history is not written: {}: {}; tried again each minute, and no amount is lost",
                  file_.string(), error.message);
  set_problem(error.message);
}

// False: it cannot be put aside. Nothing was changed.
bool Recorder::put_aside(const Error& damage, std::int64_t time) {
  const auto aside = set_aside(file_, time);
  if (aside)
    spdlog::error("the history is damaged ({}): it is now {}, and a new one begins", damage.message,
                  aside->string());
  return bool{aside};
}

bool Recorder::is_there() const {
  struct stat now {};
  return ::stat(file_.c_str(), &now) == 0 && now.st_ino == inode_;
}

void Recorder::look_at_clock(const Sample& sample) {
  const bool was_behind = std::exchange(is_behind_, sample.time + kSetBack < store_->last_time());
  if (!is_behind_ || was_behind) return;
  spdlog::warn("the clock was set back by {} s: amounts are added to times that have rows already",
               store_->last_time() - sample.time);
}

std::string Recorder::problem() const {
  const MutexLock lock(mutex_);
  return problem_;
}

void Recorder::set_problem(const std::string& words) {
  const MutexLock lock(mutex_);
  problem_ = words;
}

}  // namespace gpumem::history
