#include "daemon/core/words/checkpoint.h"

#include <algorithm>
#include <limits>

namespace gpumem::core {
namespace {

template <class Ids, class Entries>
void erase_those_of(SessionId session, const Ids& ids, Entries& entries) {
  for (const auto& id : ids) {
    const auto entry = entries.find(id);
    if (entry != entries.end() && entry->second.session == session) entries.erase(entry);
  }
}

}  // namespace

void Checkpoint::apply(const Change& change) {
  std::visit([this](const auto& one) { put(one); }, change);
}

void Checkpoint::put(const Session& one) {
  sessions.insert_or_assign(one.id, one);
  if (one.ended) answers.erase(one.id);
  last.session = std::max(last.session, one.id);
}

void Checkpoint::put(const CommandJob& one) {
  jobs.insert_or_assign(one.id, one);
  last.job = std::max(last.job, one.id);
}

void Checkpoint::put(const CommandJobGone& one) {
  jobs.erase(one.id);
  spent.erase({{}, one.id});
  last.job = std::max(last.job, one.id);
}

void Checkpoint::put(const Slice& one) {
  slices.insert_or_assign(one.id, one);
  by_session_.entries[one.session].slices.insert(one.id);
  last.slice = std::max(last.slice, one.id);
}

void Checkpoint::put(const Lease& one) {
  leases.insert_or_assign(one.id, one);
  last.lease = std::max(last.lease, one.id);
  last.grant = std::max(last.grant, one.grant);
}

void Checkpoint::put(const LeaseGone& one) {
  leases.erase(one.id);
  suspects.erase(suspects.lower_bound({one.id, {}}), suspects.lower_bound({{one.id.value + 1}, {}}));
}

void Checkpoint::put(const Import& one) {
  imports.insert_or_assign(one.id, one);
  by_session_.entries[one.session].imports.insert(one.id);
  for (const LeaseId lease : one.leases) suspects.erase({lease, one.session});
  last.import = std::max(last.import, one.id);
}

void Checkpoint::put(const Suspect& one) {
  for (const LeaseId lease : one.leases) {
    if (!leases.contains(lease)) continue;
    suspects.emplace(lease, one.session);
    by_session_.entries[one.session].suspects.insert(lease);
  }
  if (!one.leases.empty()) return;
  BySession::Entries its = take_entries_of(one.session);
  for (const LeaseId lease : std::exchange(its.suspects, {})) suspects.erase({lease, one.session});
  by_session_.entries.emplace(one.session, std::move(its));
}

void Checkpoint::put(const Declaration& one) {
  if (one.bytes.is_zero())
    declarations.erase({one.session, one.device});
  else
    declarations.insert_or_assign({one.session, one.device}, one);
}

void Checkpoint::put(const Numbers& one) {
  last = {std::max(last.session, one.session),
          std::max(last.slice, one.slice),
          std::max(last.lease, one.lease),
          std::max(last.grant, one.grant),
          std::max(last.import, one.import),
          last.region,
          last.job};
}

void Checkpoint::put(const Region& one) {
  regions.insert_or_assign(one.id, one);
  last.region = std::max(last.region, one.id);
}

void Checkpoint::put(const RegionGone& one) {
  regions.erase(one.id);
  sealed.erase(one.id);
  last.region = std::max(last.region, one.id);
}

void Checkpoint::put(const RegionSealed& one) {
  if (regions.contains(one.id)) sealed.insert_or_assign(one.id, one);
}

void Checkpoint::put(const Answer& one) {
  const auto session = sessions.find(one.session);
  if (session == sessions.end() || session->second.ended) return;
  std::vector<Answer>& of = answers[one.session];
  if (of.size() == kMostAnswers) of.erase(of.begin());
  of.push_back(one);
}

void Checkpoint::put(const Handle& one) {
  if (one.uses == 0) {
    handles.erase(one.name);
    return;
  }
  handles.insert_or_assign(one.name, one);
  by_session_.entries[one.session].handles.insert(one.name);
}

void Checkpoint::put(const AccountGone& one) {
  accounts.erase(accounts.lower_bound({one.tenant, 0}),
                 accounts.upper_bound({one.tenant, std::numeric_limits<DeviceIndex>::max()}));
}

void Checkpoint::put(const Spent& one) {
  if (sessions.contains(one.session) || jobs.contains(one.job))
    spent.insert_or_assign({one.session, one.job}, one);
}

// The index is made when it is first needed, since a broker fills a checkpoint by the tables.
Checkpoint::BySession::Entries Checkpoint::take_entries_of(SessionId session) {
  auto& entries = by_session_.entries;
  if (!std::exchange(by_session_.is_made, true)) {
    for (const auto& [id, one] : slices) entries[one.session].slices.insert(id);
    for (const auto& [id, one] : imports) entries[one.session].imports.insert(id);
    for (const auto& [name, one] : handles) entries[one.session].handles.insert(name);
    for (const auto& [lease, suspect] : suspects) entries[suspect].suspects.insert(lease);
  }
  auto its = entries.extract(session);
  return its.empty() ? BySession::Entries{} : std::move(its.mapped());
}

// With a session goes what it had, its leases excepted: those tell themselves when they are free. The time is
// by what it had, however much there is of others: sessions may come and go as often as the journal has room.
void Checkpoint::put(const SessionGone& one) {
  const BySession::Entries its = take_entries_of(one.id);
  sessions.erase(one.id);
  answers.erase(one.id);
  spent.erase({one.id, {}});
  erase_those_of(one.id, its.slices, slices);
  erase_those_of(one.id, its.imports, imports);
  erase_those_of(one.id, its.handles, handles);
  for (const LeaseId lease : its.suspects) suspects.erase({lease, one.id});
  waiting.erase(waiting.lower_bound({one.id, {}}), waiting.lower_bound({{one.id.value + 1}, {}}));
  declarations.erase(declarations.lower_bound({one.id, 0}),
                     declarations.lower_bound({{one.id.value + 1}, 0}));
}

std::vector<Checkpoint::Change> Checkpoint::changes() const {
  std::vector<Change> changes{last};
  if (last.region && !regions.contains(last.region)) changes.emplace_back(RegionGone{last.region});
  if (last.job && !jobs.contains(last.job)) changes.emplace_back(CommandJobGone{last.job});
  changes.reserve(1 + jobs.size() + sessions.size() + slices.size() + leases.size() + imports.size() +
                  suspects.size() + declarations.size() + handles.size() + regions.size() + sealed.size() +
                  waiting.size());
  const auto add = [&](const auto& entries) {
    for (const auto& [id, entry] : entries) changes.emplace_back(entry);
  };
  add(jobs);
  add(sessions);
  add(slices);
  add(leases);
  add(imports);
  for (const auto& [lease, session] : suspects) changes.emplace_back(Suspect{session, {lease}});
  add(declarations);
  add(handles);
  add(regions);
  add(sealed);
  add(waiting);
  for (const auto& [session, of] : answers) changes.insert(changes.end(), of.begin(), of.end());
  add(accounts);
  add(spent);
  return changes;
}

Bytes Checkpoint::lent(DeviceIndex device) const {
  Bytes sum;
  for (const auto& [id, lease] : leases)
    if (lease.device == device && sessions.contains(lease.session)) sum += lease.size;
  return sum;
}

}  // namespace gpumem::core
