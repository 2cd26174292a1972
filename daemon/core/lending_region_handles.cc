#include "daemon/core/lending.h"

// Handles of regions: whoever may map a region may name it to others by 64 bytes, and they map it if they
// may.

namespace gpumem::core {
namespace {

// The same for a handle that there never was, and for one of a region that is not shared with whoever asks.
Error no_region_handle() {
  return {
      Code::kNotFound,
      "the broker knows no such handle of a region: it has expired, was used up, the region has ended, or it "
      "is not shared with this tenant"};
}

}  // namespace

Result<void> Lending::export_region(const Session& session, const RegionHandleTerms& terms,
                                    const HandleBytes& bytes, TimePoint now) {
  const auto region =
      visible(session, {.owner = terms.owner, .name = terms.name, .version = terms.version}, now);
  if (!region) return region.error();
  if (auto right = check_handle(terms.expires, terms.uses, now); !right) return right;
  return handles_.add(bytes,
                      {.holder = session.id,
                       .device = (*region)->device,
                       .leases = {},
                       .offset = (*region)->offset,
                       .bytes = (*region)->bytes,
                       .expires = terms.expires,
                       .uses = terms.uses,
                       .region = (*region)->id,
                       .tenant = session.tenant},
                      now);
}

Result<const Region*> Lending::mappable(const Session& session, const HandleBytes& bytes, TimePoint now) {
  drop_expired_regions(now);
  const Handle* handle = handles_.find(bytes, now);
  const Region* region = handle == nullptr ? nullptr : regions_.find(handle->region);
  if (region == nullptr || !may_map(session.tenant, *region)) return no_region_handle();
  if (auto able = check_mapping(session, *region); !able) return able.error();
  return region;
}

void Lending::drop_handles_of_ended_regions() {
  for (const RegionId region : regions_.take_ended()) handles_.drop(region);
}

void Lending::restore(const Checkpoint::RegionHandle& from, TimePoint now) {
  const Region* region = regions_.find(from.region);
  if (region == nullptr || !check_handle(from.expires, from.uses, now)) return;
  static_cast<void>(handles_.add(from.name,
                                 {.holder = from.session,
                                  .device = region->device,
                                  .leases = {},
                                  .offset = region->offset,
                                  .bytes = region->bytes,
                                  .expires = from.expires,
                                  .uses = from.uses,
                                  .region = from.region,
                                  .tenant = state_.session(from.session).tenant},
                                 now));
}

}  // namespace gpumem::core
