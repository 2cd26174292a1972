#include "client/cli/top/picture.h"

#include <algorithm>
#include <set>

namespace gpumem::cli::top {

std::uint64_t lent_of(const v1::DeviceStatus& device) {
  return device.offered() + device.active() + device.returning() + device.quarantined();
}

void Picture::apply(const v1::Sample& sample, Clock::time_point now) {
  if (sample.whole()) forget_others(sample);
  for (const v1::TenantUsage& one : sample.tenants()) tenants_[{one.tenant(), one.device()}] = one;
  for (const v1::JobInfo& one : sample.jobs()) jobs_[one.id()] = one;
  for (const v1::SessionInfo& one : sample.sessions()) {
    Session& session = sessions_[one.id()];
    if (session.info.SerializeAsString() != one.SerializeAsString()) session = {one, now};
  }
  for (const std::string& name : sample.gone_tenants())
    std::erase_if(tenants_, [&](const auto& one) { return one.first.first == name; });
  for (const std::uint64_t id : sample.gone_jobs()) jobs_.erase(id);
  for (const std::uint64_t id : sample.gone_sessions()) sessions_.erase(id);
  asked_.clear();
  for (const v1::AskedBack& one : sample.asked_back()) {
    const auto [asked, is_new] = asked_.try_emplace(one.session(), Asked{0, one.within_ms()});
    asked->second.bytes += one.bytes();
    asked->second.within_ms = std::min(asked->second.within_ms, one.within_ms());
  }
  remember(sample);
  latest_ = sample;
  latest_.clear_tenants();
  latest_.clear_jobs();
  latest_.clear_sessions();
}

// Sessions that are still there keep when they have changed.
void Picture::forget_others(const v1::Sample& whole) {
  tenants_.clear();
  jobs_.clear();
  std::set<std::uint64_t> there;
  for (const v1::SessionInfo& one : whole.sessions()) there.insert(one.id());
  std::erase_if(sessions_, [&](const auto& one) { return !there.contains(one.first); });
}

void Picture::remember(const v1::Sample& sample) {
  for (const v1::DeviceSample& device : sample.devices()) {
    const std::uint64_t total = std::max<std::uint64_t>(device.status().total(), 1);
    auto& history = history_[device.status().uuid()];
    history.push_back(
        static_cast<unsigned>(std::min<std::uint64_t>(100, lent_of(device.status()) * 100 / total)));
    if (history.size() > kMostHistory) history.pop_front();
  }
}

std::vector<std::string> Picture::device_uuids() const {
  std::vector<std::string> uuids;
  for (const v1::DeviceSample& device : devices()) uuids.push_back(device.status().uuid());
  return uuids;
}

const std::deque<unsigned>& Picture::history(const std::string& device) const {
  static const std::deque<unsigned> kNone;
  const auto found = history_.find(device);
  return found == history_.end() ? kNone : found->second;
}

}  // namespace gpumem::cli::top
