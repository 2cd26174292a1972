#include "daemon/host/system/rate_limited_log.h"

#include "base/log.h"

namespace gpumem::host {

void RateLimitedLog::warn(const std::string& words) {
  if (!counting_) begin_second();
  if (said_ == kPerSecond || words == latest_) {
    ++unsaid_;
    return;
  }
  ++said_;
  latest_ = words;
  spdlog::warn("{}", words);
}

void RateLimitedLog::begin_second() {
  counting_ = true;
  said_ = 0;
  latest_.clear();
  second_.expires_after(std::chrono::seconds(1));
  second_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    counting_ = false;
    if (unsaid_ != 0) spdlog::warn("{} more warnings in that second", unsaid_);
    unsaid_ = 0;
  });
}

}  // namespace gpumem::host
