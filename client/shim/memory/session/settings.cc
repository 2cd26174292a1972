#include "client/shim/memory/session/settings.h"

#include <algorithm>
#include <cstdlib>

#include "base/time_format.h"

namespace gpumem::shim {
namespace {

// A set-user-id program does not take its user's word for what it uses.
std::string variable(const char* name) {
  const char* value = ::secure_getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

Result<Settings> Settings::from_environment() {
  Settings settings;
  settings.name = variable("GPUMEM_NAME");
  settings.optional = variable("GPUMEM_OPTIONAL") == "1";
  settings.account_folder = variable("GPUMEM_ACCOUNT_FOLDER");
  if (const std::string text = variable("GPUMEM_LIMIT"); !text.empty()) {
    const auto limit = parse_bytes(text);
    if (!limit) return limit.error().in("GPUMEM_LIMIT");
    if (limit->is_zero())
      return Error{Code::kInvalidArgument, "GPUMEM_LIMIT: 0 is no limit; leave it unset for none"};
    settings.limit = *limit;
  }
  if (const std::string text = variable("GPUMEM_WAIT"); !text.empty()) {
    const auto wait = parse_duration(text);
    if (!wait) return wait.error().in("GPUMEM_WAIT");
    settings.wait = *wait;
  }
  return settings;
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

}  // namespace gpumem::shim
