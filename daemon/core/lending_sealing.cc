#include <algorithm>

#include "daemon/core/lending.h"

// Sealing: the right to write to the memory of regions.

namespace gpumem::core {

// An importer by a handle, or by a region that is not sealed, can write to the memory.
Result<void> Lending::check_sealing(std::span<const LeaseId> ids, const Publish& terms) const {
  const auto is_imported = [this](LeaseId id) {
    const Imports::Shared* const shared = state_.imports.find(id);
    return shared != nullptr &&
           std::ranges::any_of(shared->users, [](const auto& user) { return user.second != 0; });
  };
  for (const LeaseId id : ids) {
    const std::set<RegionId>& there = regions_.of(id);
    if (!there.empty() && regions_.is_sealed(id) != terms.sealed) {
      return Error{Code::kFailedPrecondition,
                   words_of(regions_.at(*there.begin())) + " is of the same memory and is " +
                       (terms.sealed ? "not " : "") + "sealed: regions of one memory all are, or none is"};
    }
    if (terms.sealed && there.empty() && is_imported(id)) {
      return Error{Code::kFailedPrecondition,
                   "other processes have imported this memory, and can write to it: it cannot be sealed"};
    }
  }
  return {};
}

Result<void> Lending::check_writing(const Session& session, const Region& region) const {
  if (region.owner != session.tenant) {
    return Error{Code::kPermissionDenied,
                 words_of(region) + " is another tenant's: it is mapped for reading alone"};
  }
  if (!region.sealed) return {};
  return Error{Code::kFailedPrecondition,
               words_of(region) + " is sealed: its content does not change; publish a new version"};
}

}  // namespace gpumem::core
