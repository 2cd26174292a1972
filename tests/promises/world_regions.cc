#include <algorithm>

#include "tests/promises/world.h"

// Regions: what processes do with them, and who is charged for them.

namespace gpumem::core::promises {

std::optional<RegionId> World::publish(Process& process, DeviceIndex device, Bytes bytes, bool keep) {
  const auto slice = process.slices.find(device);
  if (!process.session || slice == process.slices.end()) return std::nullopt;
  RegionFacts facts{
      broker.tenant_name(process.session), "region " + std::to_string(++last_region_), keep, {}};
  std::vector<LeaseId> leases;
  Bytes sum;
  for (const auto& [extent, one] : process.mapped) {
    const bool is_its_own = one.session == process.session && one.slice == slice->second && !one.returned;
    if (!is_its_own || sum >= bytes || leases.size() == Handles::kMostLeases) continue;
    leases.push_back(one.lease);
    facts.extents.push_back(extent);
    sum += one.size;
  }
  const auto region = broker.publish(process.session,
                                     {.name = facts.name,
                                      .slice = slice->second,
                                      .leases = leases,
                                      .sharing = Sharing::kPublic,
                                      .keep = keep},
                                     now);
  if (region) {
    for (std::size_t i = 0; i < leases.size(); ++i) {
      const auto part = Published{leases[i], facts.owner, {process.pid}, false};
      published_.try_emplace(facts.extents[i], part).first->second.kept |= keep;
      books_.published(facts.extents[i]);
    }
    regions_[*region] = std::move(facts);
  }
  absorb();
  return region ? std::optional(*region) : std::nullopt;
}

std::optional<ImportId> World::map_region(Process& process, RegionId region) {
  if (!process.session) return std::nullopt;
  const RegionFacts& facts = regions_.at(region);
  const auto mapped = broker.map_region(process.session, {.owner = facts.owner, .name = facts.name}, now);
  if (mapped) {
    const Imported& imported = mapped->imported;
    RegionMapping& mapping = process.regions[imported.id];
    mapping = {process.session, imported.device, {}, broker.tenant_name(process.session), false};
    for (const auto& [lease, extent] : imported.leases) {
      driver.hold(extent.id);
      books_.mapped(extent.id);
      published_.at(extent.id).pids.insert(process.pid);
      mapping.extents.push_back(extent.id);
    }
  }
  absorb();
  return mapped ? std::optional(mapped->imported.id) : std::nullopt;
}

void World::unmap_region(Process& process, ImportId import) {
  const auto found = process.regions.find(import);
  const SessionId session = found->second.session;
  if (process.traits.keeps_returned) {
    found->second.released = true;
  } else {
    for (const ExtentId extent : found->second.extents) {
      driver.let_go(extent);
      books_.unmapped(extent);
    }
    process.regions.erase(found);
  }
  if (!broker.release_import(session, {import}, now))
    fail("process " + std::to_string(process.pid) + " may not unmap what it has mapped");
  absorb();
}

bool World::unmap_one_region(Process& process, DeviceIndex device) {
  for (const auto& [import, mapping] : process.regions) {
    if (mapping.device != device || mapping.session != process.session || mapping.released) continue;
    unmap_region(process, import);
    return true;
  }
  return false;
}

void World::remove_region(RegionId region) {
  const RegionFacts facts = regions_.at(region);
  if (!broker.remove_region_of(facts.owner, {facts.name}, now))
    fail("a region that there is cannot be removed");
  absorb();
}

// Who is charged for what is published, as the broker has it: somebody who has it, or, while it is kept, a
// session without a process. Answers what of it was proved free.
World::FreedBytes World::follow_published() {
  FreedBytes freed;
  if (published_.empty()) return freed;
  const Checkpoint checkpoint = broker.checkpoint();
  for (const auto& [id, tenant] : broker.detached_sessions())
    sessions_.try_emplace(id, SessionFacts{.pid = 0, .tenant = tenant, .has_lane = false});
  for (auto& [extent, one] : published_) {
    const auto lease = checkpoint.leases.find(one.lease);
    if (lease == checkpoint.leases.end()) {
      const Books::Freed gone = books_.freed(extent);
      freed[{gone.session, gone.device}] += gone.size;
      if (!gone.was_given_back) fail("P1: freed was a region's memory that nobody has given back");
      continue;
    }
    if (lease->second.session != books_.holder(extent)) {
      fail(check_holder(extent, lease->second.session));
      if (const auto facts = sessions_.find(lease->second.session); facts != sessions_.end()) {
        happened_.inherited[{facts->second.tenant, books_.device(extent)}] += books_.size(extent);
        happened_.inheriting.insert(facts->second.job);
      }
      books_.passed(extent, lease->second.session, lease->second.returned);
      ++passed_;
    } else if (lease->second.returned) {
      books_.given_back(extent);
    }
  }
  std::erase_if(published_,
                [&](const auto& entry) { return !checkpoint.leases.contains(entry.second.lease); });
  std::set<LeaseId> left;
  for (const auto& [id, import] : checkpoint.imports)
    if (has_left(import.session)) left.insert(import.leases.begin(), import.leases.end());
  left_imported_.clear();
  for (const auto& [extent, one] : published_)
    if (left.contains(one.lease)) left_imported_.insert(extent);
  std::erase_if(regions_, [&](const auto& entry) { return !checkpoint.regions.contains(entry.first); });
  return freed;
}

Sharers World::keepers() const {
  Sharers keepers;
  for (const auto& [pid, process] : processes_) {
    for (const auto& [import, mapping] : process->regions) {
      for (const ExtentId extent : mapping.extents) {
        if (mapping.released || !published_.contains(extent)) continue;
        const SessionId holder = books_.holder(extent);
        if (holder != mapping.session)
          keepers[{mapping.session, mapping.device}].insert(sessions_.at(holder).tenant);
      }
    }
  }
  return keepers;
}

bool World::has_left(SessionId session) const {
  const auto facts = sessions_.find(session);
  return facts == sessions_.end() || !facts->second.has_lane;
}

// Until the driver has been asked again, nobody can know that whoever kept it has let go meanwhile. A session
// without a lane cannot even say so.
Sharers World::entangled() {
  const auto with_all = [&](ExtentId extent, DeviceIndex device) {
    const auto published = published_.find(extent);
    if (published == published_.end()) return;
    const std::string& charged = sessions_.at(books_.holder(extent)).tenant;
    for (const std::int64_t pid : published->second.pids) {
      const auto process = processes_.find(pid);
      if (process == processes_.end()) continue;
      for (const SessionId session : process->second->sessions) entangled_[{session, device}][charged] = now;
    }
  };
  for (const auto& [pid, process] : processes_) {
    for (const auto& [extent, mapping] : process->mapped)
      if (mapping.returned) with_all(extent, mapping.device);
    for (const auto& [import, mapping] : process->regions) {
      if (!mapping.released && !has_left(mapping.session)) continue;
      for (const ExtentId extent : mapping.extents) with_all(extent, mapping.device);
    }
  }
  for (const ExtentId extent : left_imported_) with_all(extent, books_.device(extent));
  Sharers entangled;
  for (auto& [sharer, tenants] : entangled_) {
    std::erase_if(tenants, [&](const auto& one) { return one.second + ClaimClock::kSlack < now; });
    for (const auto& [tenant, last] : tenants) entangled[sharer].insert(tenant);
  }
  return entangled;
}

std::string World::check_holder(ExtentId extent, SessionId holder) const {
  const Published& one = published_.at(extent);
  const SessionFacts& facts = sessions_.at(holder);
  const std::string name = "session " + std::to_string(holder.value) + " of " + facts.tenant;
  if (facts.pid != 0)
    return one.pids.contains(facts.pid) ? "" : "P3: " + name + " is charged for what it has never mapped";
  if (facts.tenant != one.tenant) return "P3: " + name + " is charged for what " + one.tenant + " has kept";
  return one.kept ? "" : "P3: " + name + " is charged for what was never to be kept";
}

}  // namespace gpumem::core::promises
