#include "daemon/host/descriptor_budget.h"

#include <sys/resource.h>

namespace gpumem::host {

DescriptorBudget DescriptorBudget::of_process() {
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return DescriptorBudget(known ? static_cast<std::size_t>(limit.rlim_cur) : std::size_t{1} << 20);
}

}  // namespace gpumem::host
