#include "daemon/rpc/watch/sample_table.h"

#include "base/text/time_format.h"

namespace gpumem::rpc {
namespace {

// Whether the instants differ by more than by rounding: the clock was set.
bool is_another(const std::string& before, const std::string& now) {
  constexpr std::chrono::seconds kRounding{2};
  if (before == now) return false;
  const auto one = parse_rfc3339(before), other = parse_rfc3339(now);
  return one && other && std::chrono::abs(*one - *other) > kRounding;
}

}  // namespace

void SampleTable::begin() {
  ++number_;
  changes_.assign(1, {});
}

void SampleTable::put(v1::TenantUsage usage) {
  Entry& entry = tenants_[{usage.tenant(), usage.device()}];
  *one_.add_tenants() = std::move(usage);
  keep(entry);
}

void SampleTable::put(v1::JobInfo job) { put_dated(jobs_, std::move(job), &v1::Sample::add_jobs); }

void SampleTable::put(v1::SessionInfo session) {
  put_dated(sessions_, std::move(session), &v1::Sample::add_sessions);
}

template <class Info>
void SampleTable::put_dated(Entries<std::uint64_t>& entries, Info info, Info* (v1::Sample::*add)()) {
  Entry& entry = entries[info.id()];
  if (entry.since.empty() || is_another(entry.since, info.since()))
    entry.since = info.since();
  else
    info.set_since(entry.since);
  *(one_.*add)() = std::move(info);
  keep(entry);
}

void SampleTable::keep(Entry& entry) {
  std::string bytes = one_.SerializeAsString();
  one_.Clear();
  entry.seen = number_;
  if (bytes == entry.bytes) return;
  append(changes_, bytes);
  entry.bytes = std::move(bytes);
}

template <class Key, class Gone>
void SampleTable::drop_unseen(Entries<Key>& entries, Gone gone) {
  for (auto entry = entries.begin(); entry != entries.end();) {
    if (entry->second.seen == number_) {
      ++entry;
      continue;
    }
    gone(entry->first);
    append(changes_, one_.SerializeAsString());
    one_.Clear();
    entry = entries.erase(entry);
  }
}

SampleTable::Messages SampleTable::end() {
  drop_unseen(tenants_, [&](const auto& key) { one_.add_gone_tenants(key.first); });
  drop_unseen(jobs_, [&](std::uint64_t id) { one_.add_gone_jobs(id); });
  drop_unseen(sessions_, [&](std::uint64_t id) { one_.add_gone_sessions(id); });
  return std::move(changes_);
}

SampleTable::Messages SampleTable::whole() const {
  Messages messages(1);
  for (const auto& [key, entry] : tenants_) append(messages, entry.bytes);
  for (const auto& [id, entry] : jobs_) append(messages, entry.bytes);
  for (const auto& [id, entry] : sessions_) append(messages, entry.bytes);
  return messages;
}

void SampleTable::append(Messages& messages, const std::string& bytes) {
  if (!messages.back().empty() && messages.back().size() + bytes.size() > kMessageBytes)
    messages.emplace_back();
  messages.back() += bytes;
}

}  // namespace gpumem::rpc
