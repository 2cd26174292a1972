#include "daemon/rpc/watch/sampler.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>

#include "base/text/time_format.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/reconcile_call.h"
#include "daemon/rpc/session_copies.h"

namespace gpumem::rpc {
namespace {

// What one page copies on the core's thread.
constexpr std::size_t kViewedTenants = 64;
constexpr std::size_t kViewedJobs = 64;
constexpr std::size_t kViewedSlices = 256;
constexpr std::size_t kViewedRequests = 64;
constexpr std::size_t kCallers = 16;

/// Says which tenants' requests are to be listed: those that a viewer may see, so many of each. It is asked
/// on the core's thread for every request that waits.
class WantedRequests {
 public:
  explicit WantedRequests(const TakenSample& sample) : parents_(sample.parents) {
    for (const auto& caller : sample.callers)
      if (caller) viewers_.add(*caller);
  }

  bool take(const std::string& tenant) {
    const auto [known, is_new] = left_.try_emplace(tenant, 0);
    if (is_new && viewers_.may_follow(tenant, parents_)) known->second = ViewSampler::kMostOfTenant;
    if (known->second == 0) return false;
    --known->second;
    return true;
  }

 private:
  const Parents& parents_;
  Followers viewers_;
  std::map<std::string, std::size_t> left_;
};

}  // namespace

std::optional<TakenSample> ViewSampler::take(const Connections& viewers) {
  TakenSample sample;
  sample.number = ++number_;
  table_.begin();
  const bool copied = copy_callers(viewers, sample) && copy_devices(sample) && copy_tenants(sample) &&
                      copy_jobs() && copy_sessions(sample) && copy_waiting(sample);
  if (!copied) return std::nullopt;
  sample.changes = table_.end();
  return sample;
}

// The configuration may have changed, and with it who may see what.
bool ViewSampler::copy_callers(const Connections& viewers, TakenSample& sample) {
  for (std::size_t first = 0; first < viewers.size(); first += kCallers) {
    const auto page = std::span(viewers).subspan(first, std::min(kCallers, viewers.size() - first));
    const bool copied = executor_.post_and_wait([&](core::Broker&, core::TimePoint) {
      for (const auto& viewer : page)
        sample.callers.push_back(viewer ? executor_.caller_of(*viewer) : std::nullopt);
    });
    if (!copied) return false;
  }
  return true;
}

bool ViewSampler::copy_devices(TakenSample& sample) {
  std::vector<core::DeviceView> views;
  std::vector<core::Reconciliation> seen;
  core::TimePoint now{};
  const bool copied = executor_.post_and_wait([&](core::Broker& broker, core::TimePoint at) {
    now = at;
    views = broker.devices();
    for (core::DeviceIndex i = 0; i < views.size(); ++i)
      seen.push_back(broker.reconciliation(i).without_processes());
  });
  if (!copied) return false;
  const std::vector<core::DeviceLoad> loads = read_loads_ ? read_loads_() : std::vector<core::DeviceLoad>();
  v1::Sample tail;
  tail.set_last(true);
  tail.set_time(to_rfc3339(std::chrono::system_clock::now(), Precision::kMicroseconds));
  devices_.clear();
  for (std::size_t i = 0; i < views.size(); ++i) {
    devices_.push_back(views[i].policy.uuid);
    v1::DeviceSample& device = *tail.add_devices();
    *device.mutable_status() = to_proto(views[i], now);
    *device.mutable_reconciliation() = reconciliation_of(seen[i], devices_[i], now);
    if (i >= loads.size()) continue;
    if (loads[i].utilization) device.set_utilization(*loads[i].utilization);
    if (loads[i].temperature) device.set_temperature(*loads[i].temperature);
  }
  sample.tail = tail.SerializeAsString();
  return true;
}

bool ViewSampler::copy_tenants(TakenSample& sample) {
  std::string after;
  for (bool more = true; more;) {
    std::vector<core::TenantView> views;
    if (!executor_.post_and_wait(
            [&](core::Broker& broker, core::TimePoint) { views = broker.tenants(after, kViewedTenants); }))
      return false;
    for (const core::TenantView& view : views) {
      if (!view.parent.empty()) sample.parents[view.name] = view.parent;
      table_.put(to_proto(view, devices_[view.device]));
    }
    more = !views.empty() && views.size() == kViewedTenants * devices_.size();
    if (more) after = views.back().name;
  }
  return true;
}

bool ViewSampler::copy_jobs() {
  core::CommandJobId after;
  for (bool more = true; more;) {
    std::vector<core::JobView> views;
    core::TimePoint now{};
    if (!executor_.post_and_wait([&](core::Broker& broker, core::TimePoint at) {
          now = at;
          views = broker.jobs(after, kViewedJobs);
        }))
      return false;
    for (const core::JobView& view : views) table_.put(to_proto(view, devices_, now));
    more = views.size() == kViewedJobs;
    if (more) after = views.back().id;
  }
  return true;
}

bool ViewSampler::copy_sessions(TakenSample& sample) {
  SessionId after;
  for (bool more = true; more;) {
    std::vector<SessionCopy> copies;
    core::TimePoint now{};
    if (!executor_.post_and_wait([&](core::Broker& broker, core::TimePoint at) {
          now = at;
          copies = rpc::copy_sessions(broker, executor_, after, kViewedSlices);
        }))
      return false;
    for (const SessionCopy& copy : copies) {
      table_.put(to_proto(copy, devices_, now));
      for (const core::AskedView& asked : copy.view.asked) {
        v1::Sample line;
        v1::AskedBack& one = *line.add_asked_back();
        one.set_session(copy.view.id.value);
        one.set_device(devices_.at(asked.device));
        one.set_bytes(asked.bytes.count);
        one.set_within_ms(core::to_milliseconds(std::max(asked.due - now, core::Duration{})));
        sample.lines.push_back({copy.view.tenant, line.SerializeAsString()});
      }
    }
    more = !copies.empty();
    if (more) after = copies.back().view.id;
  }
  return true;
}

bool ViewSampler::copy_waiting(TakenSample& sample) {
  RequestId after;
  std::size_t room = kMostWaiting;
  WantedRequests wanted(sample);
  const core::Explainer::IsWanted is_wanted = [&](const std::string& tenant) { return wanted.take(tenant); };
  do {
    core::WaitingPage page;
    if (!executor_.post_and_wait([&](core::Broker& broker, core::TimePoint now) {
          page = broker.waiting(after, std::min(room, kViewedRequests), is_wanted, now);
        }))
      return false;
    for (const core::Denial& denial : page.requests) {
      v1::Sample line;
      *line.add_waiting() = to_proto(denial);
      sample.lines.push_back({denial.tenant, line.SerializeAsString()});
    }
    room -= page.requests.size();
    after = page.next;
  } while (after && room != 0);
  return true;
}

}  // namespace gpumem::rpc
