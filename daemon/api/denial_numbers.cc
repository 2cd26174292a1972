#include "daemon/api/denial_numbers.h"

#include <algorithm>

namespace gpumem::api {

std::uint64_t reason_number(core::Denial::Reason reason) {
  switch (reason) {
    case core::Denial::Reason::kSliceLimit: return 1;
    case core::Denial::Reason::kTenantLimit: return 2;
    case core::Denial::Reason::kPoolSize: return 3;
    case core::Denial::Reason::kNoMemory: return 4;
    case core::Denial::Reason::kDebt: return 5;
    case core::Denial::Reason::kTurn: return 6;
  }
  return 0;
}

std::uint64_t milliseconds(core::Duration duration) {
  const auto count = std::chrono::ceil<std::chrono::milliseconds>(duration).count();
  return static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0));
}

}  // namespace gpumem::api
