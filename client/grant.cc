#include "client/grant.h"

#include <algorithm>
#include <cerrno>

#include "base/crash_point.h"

namespace gpumem::client {
namespace {

Error disagreement(std::string_view what) {
  return {Code::kInternal, "the broker granted something else than was requested: " + std::string(what)};
}

}  // namespace

void Intake::add(GrantPart part) {
  grant_ = part.granted.grant;
  const auto* const first = part.granted.leases.data();
  leases_.insert(leases_.end(), first, first + part.granted.count);
  if (all_) all_ = import(part);
}

Result<void> Intake::import(GrantPart& part) {
  if (part.lost_descriptors) {
    return Error{Code::kResourceExhausted,
                 "this process has no room for the descriptors of its memory; raise RLIMIT_NOFILE"};
  }
  if (part.descriptors.size() != part.granted.count) return disagreement("extents without descriptors");
  for (std::size_t i = 0; i < part.descriptors.size(); ++i) {
    auto imported = import(part.granted.leases[i], std::move(part.descriptors[i]));
    if (!imported) return imported;
  }
  return {};
}

Result<void> Intake::import(const lane::GrantedLease& lease, OwnFd descriptor) {
  const auto terms = std::ranges::find(terms_, lease.slice, &GrantTerms::slice);
  if (terms == terms_.end()) return disagreement("an extent for a slice that did not ask");
  if (lease.size == 0 || lease.size % terms->granularity.count != 0)
    return disagreement("an extent of " + std::to_string(lease.size) + " bytes");
  if (!seen_.insert(lease.lease).second) return disagreement("an extent twice");
  if (fails_at(CrashPoint::kClientGrowImport)) return errno_error(EMFILE, "cuMemImportFromShareableHandle");
  auto imported = cuda::Allocation::import(driver_, descriptor.get(), {lease.size});
  if (!imported) return imported.error();
  Portion& portion = portions_[static_cast<std::size_t>(terms - terms_.begin())];
  portion.extents.push_back({lease.lease, {lease.size}});
  portion.allocations.push_back(std::move(*imported));
  return {};
}

Result<void> Intake::check_sizes() const {
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    Bytes sum;
    for (const Portion::Extent& extent : portions_[i].extents) {
      const auto more = sum.plus(extent.size);
      if (!more) return disagreement("more than 2^64 bytes");
      sum = *more;
    }
    if (sum < terms_[i].least || sum > terms_[i].asked)
      return disagreement(to_string(sum) + " instead of " + to_string(terms_[i].asked));
  }
  return {};
}

Result<std::vector<Portion>> Intake::take() {
  if (!all_) return all_.error();
  if (auto right = check_sizes(); !right) return right.error();
  crash_at(CrashPoint::kClientGrowImported);
  return std::move(portions_);
}

}  // namespace gpumem::client
