#include "client/grant.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace gpumem::client {
namespace {

Error disagreement(std::string_view what) {
  return {Code::kInternal, "the broker granted something else than it offered: " + std::string(what)};
}

Result<void> check_part(const v1::GrowResponse& granted, const GrantTerms& terms) {
  Bytes sum;
  for (const v1::Lease& lease : granted.leases()) {
    if (lease.slice() != terms.slice) continue;
    const auto more = sum.plus({lease.size()});
    if (!more || lease.size() == 0 || lease.size() % terms.granularity.count != 0) {
      return disagreement("an extent of " + std::to_string(lease.size()) + " bytes");
    }
    sum = *more;
  }
  if (sum < terms.least || sum > terms.asked) {
    return disagreement(to_string(sum) + " instead of " + to_string(terms.asked));
  }
  return {};
}

const GrantTerms* terms_of(const v1::Lease& lease, std::span<const GrantTerms> terms) {
  const auto found = std::ranges::find(terms, lease.slice(), &GrantTerms::slice);
  return found == terms.end() ? nullptr : &*found;
}

Result<void> check(const v1::GrowResponse& granted, std::span<const GrantTerms> terms) {
  for (const v1::Lease& lease : granted.leases()) {
    if (terms_of(lease, terms) == nullptr) return disagreement("an extent for a slice that did not ask");
  }
  for (const GrantTerms& part : terms) {
    if (auto right = check_part(granted, part); !right) return right.error();
  }
  return {};
}

/// The allocations of a grant, collected as offers arrive.
class Intake {
 public:
  explicit Intake(const v1::GrowResponse& granted) : granted_(granted), taken_(expected()) {
    for (std::size_t i = 0; i < taken_.size(); ++i) places_.emplace(lease(i).id(), i);
  }

  bool complete() const { return count_ == taken_.size(); }

  Result<void> import(const cuda::Driver& driver, Offer offer) {
    for (std::size_t i = 0; i < offer.leases.size(); ++i) {
      const auto place = places_.find(offer.leases[i]);
      if (place == places_.end() || taken_[place->second]) {
        return disagreement("an extent that is not in the answer");
      }
      const Bytes size{lease(place->second).size()};
      auto imported = cuda::Allocation::import(driver, offer.descriptors[i].get(), size);
      if (!imported) return imported.error();
      offer.descriptors[i] = OwnFd();
      taken_[place->second] = std::move(*imported);
      ++count_;
    }
    return {};
  }

  std::vector<Portion> take(std::span<const GrantTerms> terms) {
    std::vector<Portion> portions(terms.size());
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      Portion& portion = portions[static_cast<std::size_t>(terms_of(lease(i), terms) - terms.data())];
      portion.extents.push_back({lease(i).id(), {lease(i).size()}});
      portion.allocations.push_back(std::move(*taken_[i]));
    }
    return portions;
  }

 private:
  std::size_t expected() const { return static_cast<std::size_t>(granted_.leases_size()); }
  const v1::Lease& lease(std::size_t i) const { return granted_.leases(static_cast<int>(i)); }

  const v1::GrowResponse& granted_;
  std::unordered_map<std::uint64_t, std::size_t> places_;  // lease to its place in the answer
  std::vector<std::optional<cuda::Allocation>> taken_;
  std::size_t count_ = 0;
};

}  // namespace

Result<std::vector<Portion>> receive_grant(Lane& lane, const cuda::Driver& driver,
                                           const v1::GrowResponse& granted,
                                           std::span<const GrantTerms> terms) {
  if (auto right = check(granted, terms); !right) return right.error();
  Intake intake(granted);
  while (!intake.complete()) {
    auto offer = lane.receive_offer(granted.grant());
    if (!offer) return offer.error();
    if (auto imported = intake.import(driver, std::move(*offer)); !imported) return imported.error();
  }
  return intake.take(terms);
}

}  // namespace gpumem::client
