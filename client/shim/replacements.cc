#include "client/shim/replacements.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "client/shim/calls.h"
#include "client/shim/published.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

/// The real address of a call and the exported function of the shim, ordered by the former.
using Replacements = std::vector<std::pair<void*, void*>>;

Replacements look_up_all() {
  const std::pair<const char*, void*> replaced[] = {
#define GPUMEM_SHIM_CALL(name, treatment, why) {#name, reinterpret_cast<void*>(&::name)},
#include "client/shim/calls.def"
#undef GPUMEM_SHIM_CALL
  };
  Replacements found;
  for (const auto& [name, ours] : replaced) {
    if (void* const address = real_symbol(name); address != nullptr) found.emplace_back(address, ours);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return std::less<void*>()(a.first, b.first); });
  return found;
}

constinit Published<Replacements> published_replacements;

}  // namespace

void* replacement_of(void* address) {
  const Replacements& all = published_replacements.get(look_up_all);
  const auto found = std::lower_bound(all.begin(), all.end(), address, [](const auto& entry, void* wanted) {
    return std::less<void*>()(entry.first, wanted);
  });
  return found != all.end() && found->first == address ? found->second : address;
}

}  // namespace gpumem::shim
