#include <algorithm>

#include "tests/model/reference.h"

// Every figure, counted afresh.

namespace gpumem::core::model {

Number Reference::charged(const std::string& tenant, DeviceIndex device, std::optional<Charge> state) const {
  Number sum = 0;
  for (const LeaseRecord& lease : leases) {
    if (lease.tenant == tenant && lease.device == device && (!state || lease.state == *state))
      sum += lease.bytes();
  }
  for (const RequestRecord& one : requests) {
    if (one.tenant == tenant && (!state || *state == Charge::kOffered)) sum += one.granted_on(device);
  }
  return sum;
}

Number Reference::charged(DeviceIndex device) const {
  Number sum = assembling(device);
  for (const LeaseRecord& lease : leases) sum += lease.device == device ? lease.bytes() : 0;
  return sum;
}

bool Reference::is_any_returning(DeviceIndex device) const {
  for (const LeaseRecord& lease : leases) {
    if (lease.device == device && lease.state == Charge::kReturning) return true;
  }
  return false;
}

bool Reference::is_any_stuck(DeviceIndex device) const {
  return std::ranges::any_of(leases, [&](const LeaseRecord& lease) {
    return lease.device == device && (lease.state > Charge::kActive || !session(lease.session)->alive);
  });
}

Number Reference::charged(SliceId id) const {
  Number sum = 0;
  for (const LeaseRecord& lease : leases) sum += lease.slice == id ? lease.bytes() : 0;
  for (const RequestRecord& one : requests) sum += one.granted_of(id);
  return sum;
}

Number Reference::held(SliceId id) const {
  Number sum = 0;
  for (const LeaseRecord& lease : leases) {
    const bool on_loan = lease.state == Charge::kOffered || lease.state == Charge::kActive;
    sum += lease.slice == id && on_loan ? lease.bytes() : 0;
  }
  for (const RequestRecord& one : requests) sum += one.granted_of(id);
  return sum;
}

Number Reference::assembling(DeviceIndex device) const {
  Number sum = 0;
  for (const RequestRecord& one : requests) sum += one.granted_on(device);
  return sum;
}

Number Reference::assembling_jointly(DeviceIndex device) const {
  Number sum = 0;
  for (const RequestRecord& one : requests) sum += one.granted.size() > 1 ? one.granted_on(device) : 0;
  return sum;
}

Number Reference::waiting(SliceId id) const {
  Number sum = 0;
  for (const RequestRecord& one : requests) sum += one.assembling() ? 0 : one.wanted(id);
  return sum;
}

std::size_t Reference::waiting(DeviceIndex device, const std::string* tenant) const {
  std::size_t count = 0;
  for (const RequestRecord& one : requests) {
    const bool is_there = std::ranges::count(one.request.parts, device, &Request::Part::device) != 0;
    count += is_there && !one.assembling() && (tenant == nullptr || is_below(one.tenant, *tenant)) ? 1 : 0;
  }
  return count;
}

bool Reference::waits(SessionId id) const {
  return std::ranges::any_of(
      requests, [&](const RequestRecord& one) { return one.request.session == id && !one.assembling(); });
}

Number Reference::free(DeviceIndex device) const { return pool(device) - charged(device) - missing[device]; }

Number Reference::answers_for(SessionId id, DeviceIndex device) const {
  Number sum = 0;
  for (const LeaseRecord& lease : leases) {
    if (lease.session == id && lease.device == device && lease.state == Charge::kQuarantined)
      sum += lease.bytes();
  }
  const SessionRecord* one = session(id);
  return one != nullptr && one->declared.contains(device) ? sum + one->declared.at(device) : sum;
}

Number Reference::outside(const std::string& tenant, DeviceIndex device) const {
  Number sum = 0;
  for (const SessionRecord& one : sessions) {
    if (one.tenant == tenant && one.declared.contains(device)) sum += one.declared.at(device);
  }
  return sum;
}

bool Reference::is_below(const std::string& tenant, const std::string& of) const {
  return tenant == of || (!tenant.empty() && is_below(tenants.at(tenant).parent, of));
}

Number Reference::RequestRecord::wanted(SliceId slice) const {
  Number sum = 0;
  for (const Request::Part& part : request.parts) sum += part.slice == slice ? number(part.bytes) : 0;
  return sum;
}

Number Reference::RequestRecord::granted_of(SliceId slice) const {
  Number sum = 0;
  for (std::size_t i = 0; i < granted.size(); ++i) sum += request.parts[i].slice == slice ? granted[i] : 0;
  return sum;
}

Number Reference::RequestRecord::granted_on(DeviceIndex device) const {
  Number sum = 0;
  for (std::size_t i = 0; i < granted.size(); ++i) sum += request.parts[i].device == device ? granted[i] : 0;
  return sum;
}

// ---- Looking up ----

const Reference::SessionRecord* Reference::session(SessionId id) const {
  const auto found =
      std::find_if(sessions.begin(), sessions.end(), [&](const auto& one) { return one.id == id; });
  return found == sessions.end() ? nullptr : &*found;
}
const Reference::SliceRecord* Reference::slice(SliceId id) const {
  const auto found =
      std::find_if(slices.begin(), slices.end(), [&](const auto& one) { return one.id == id; });
  return found == slices.end() ? nullptr : &*found;
}
const Reference::RequestRecord* Reference::request(RequestId id) const {
  const auto found =
      std::find_if(requests.begin(), requests.end(), [&](const auto& one) { return one.id() == id; });
  return found == requests.end() ? nullptr : &*found;
}
const Reference::LeaseRecord* Reference::lease_of(ExtentId id) const {
  const auto found =
      std::find_if(leases.begin(), leases.end(), [&](const auto& one) { return one.extent.id == id; });
  return found == leases.end() ? nullptr : &*found;
}
bool Reference::holds_leases(SessionId id) const {
  return std::any_of(leases.begin(), leases.end(), [&](const auto& one) { return one.session == id; });
}
bool Reference::is_connected(const std::string& tenant) const {
  return std::any_of(sessions.begin(), sessions.end(), [&](const auto& one) { return one.tenant == tenant; });
}

}  // namespace gpumem::core::model
