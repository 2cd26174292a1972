#include "client/shim/memory/session/settings.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/text/time_format.h"
#include "client/process/environment.h"

namespace gpumem::shim {

Result<Settings> Settings::from_environment() {
  const auto limit = client::limit_of_environment();
  if (!limit) return limit.error();
  const auto wait = client::wait_of_environment();
  if (!wait) return wait.error();
  const auto name = client::label_of_environment();
  if (!name) return name.error();
  const char* const optional = ::secure_getenv("GPUMEM_OPTIONAL");
  Settings settings;
  settings.limit = *limit;
  settings.wait = wait->value_or(settings.wait);
  settings.name = *name;
  settings.optional = optional != nullptr && std::string_view(optional) == "1";
  return settings;
}

bool has_slice_from_start() {
  const auto is_set = [](const char* name) {
    const char* const value = ::secure_getenv(name);
    return value != nullptr && *value != '\0';
  };
  return is_set("GPUMEM_JOB") || is_set("GPUMEM_LIMIT") || is_set("KUBERNETES_SERVICE_HOST");
}

std::chrono::milliseconds WaitPolicy::wait_for(Bytes bytes, Clock::time_point now) const {
  const MutexLock lock(mutex_);
  const bool is_of_cascade = now < until_ && bytes <= refused_;
  return is_of_cascade ? std::chrono::milliseconds::zero() : wait_;
}

void WaitPolicy::timed_out(Bytes bytes, Clock::time_point now) {
  const MutexLock lock(mutex_);
  refused_ = now < until_ ? std::max(refused_, bytes) : bytes;
  until_ = now + kCascade;
}

bool may_come_true(const GrowError& error, Bytes bytes, Bytes own) {
  // Past its deadline: another thread waits with a request of the same slice.
  if (!error.denial) return is_away(error) || error.code == Code::kDeadlineExceeded;
  const Denial& denial = *error.denial;
  switch (denial.reason) {
    case Denial::Reason::kNoMemory:
    case Denial::Reason::kTurn:
    case Denial::Reason::kUnknown: return true;
    case Denial::Reason::kTenantLimit:
    case Denial::Reason::kDebt: {
      const auto all = own.plus(bytes);
      return all && *all <= denial.limiting_limit;
    }
    case Denial::Reason::kSliceLimit:
    case Denial::Reason::kPoolSize: break;
  }
  return false;
}

std::string wait_for_broker_text(const Error& away, std::chrono::milliseconds wait) {
  return "waiting for the broker, at most " + span_text(wait) + ": " + away.message;
}

}  // namespace gpumem::shim
