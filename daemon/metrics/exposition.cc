#include "daemon/metrics/exposition.h"

#include <exception>
#include <utility>

#include "base/thread_guards.h"

namespace gpumem::metrics {

Exposition::Exposition(Make make, std::chrono::milliseconds fresh) : make_(std::move(make)), fresh_(fresh) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { work(); });
}

Exposition::~Exposition() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Exposition::request(Then then) {
  {
    const MutexLock lock(mutex_);
    if (asking_.size() < kMostAsking) asking_.push_back(std::exchange(then, nullptr));
  }
  if (then) return then(nullptr);
  wake_.notify_one();
}

bool Exposition::next(std::vector<Then>& asking) {
  const MutexLock lock(mutex_);
  while (asking_.empty() && !stopping_) wake_.wait(mutex_);
  if (stopping_) return false;
  asking = std::exchange(asking_, {});
  return true;
}

void Exposition::work() {
  for (std::vector<Then> asking; next(asking);) {
    if (!is_fresh()) refresh();
    for (const Then& then : asking) then(latest_);
  }
}

void Exposition::refresh() {
  std::erase_if(held_, [](const auto& one) { return one.expired(); });
  if (held_.size() >= kMostTexts) return;
  std::optional<std::string> text;
  try {
    text = make_();
  } catch (const std::exception&) {  // no memory for it: none this time
  }
  made_ = Clock::now();
  latest_ = text ? std::make_shared<const std::string>(std::move(*text)) : nullptr;
  if (latest_) held_.push_back(latest_);
}

}  // namespace gpumem::metrics
