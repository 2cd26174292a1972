#include "daemon/api/explanation_limit.h"

#include <string>

#include "daemon/core/refusals.h"

namespace gpumem::api {

Result<void> ExplanationLimit::add(std::uint64_t account, core::TimePoint now) {
  if (now >= end_) {
    by_user_.clear();
    end_ = now + kWindow;
  }
  std::size_t& count = by_user_[account];
  if (count >= kMostOfAUser) {
    return core::refusal(core::Bound::kListings, "this user has had " + std::to_string(count) +
                                                     " explanations within a second; ask again later");
  }
  ++count;
  return {};
}

}  // namespace gpumem::api
