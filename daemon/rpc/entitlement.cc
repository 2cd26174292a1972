#include "daemon/rpc/entitlement.h"

#include "daemon/core/words/policy.h"

namespace gpumem::rpc {
namespace {

std::string administrators(const core::Caller& caller) {
  const std::string uid = "uid " + std::to_string(caller.peer.uid);
  return "administrators (root, or a member of the configured admin group); this is " + uid +
         (caller.tenant.empty() ? ", of no tenant" : ", of tenant '" + caller.tenant + "'");
}

// Whether it holds for the tenant or one above it. The copy may be of several moments, so that it could have
// a cycle.
template <class IsTop>
bool lies_within(const std::string& tenant, const Parents& parents, const IsTop& is_top) {
  const std::string* above = &tenant;
  for (std::size_t steps = 0; steps <= parents.size(); ++steps) {
    if (is_top(*above)) return true;
    const auto parent = parents.find(*above);
    if (parent == parents.end()) return false;
    above = &parent->second;
  }
  return false;
}

bool concerns(const core::Caller& caller, const std::string& tenant, const core::Broker& broker) {
  if (caller.admin) return true;
  if (caller.tenant.empty() || tenant.empty()) return false;
  return tenant == caller.tenant || broker.belongs(tenant, caller.tenant);
}

}  // namespace

bool may_follow(const core::Caller& caller, const std::string& tenant, const core::Broker& broker) {
  return caller.reader || concerns(caller, tenant, broker);
}

bool may_follow(const core::Caller& caller, const std::string& tenant, const Parents& parents) {
  if (caller.admin) return true;
  if (caller.tenant.empty() || tenant.empty()) return false;
  return lies_within(tenant, parents, [&](const std::string& one) { return one == caller.tenant; });
}

void Followers::add(const core::Caller& caller) {
  has_admin_ = has_admin_ || caller.admin;
  if (!caller.tenant.empty()) tenants_.insert(caller.tenant);
}

bool Followers::may_follow(const std::string& tenant, const Parents& parents) const {
  if (has_admin_) return true;
  return !tenant.empty() &&
         lies_within(tenant, parents, [&](const std::string& one) { return tenants_.contains(one); });
}

bool may_read_words(const core::Caller& caller, const core::Event& event) {
  return event.kind != core::Event::Kind::kDenied || caller.admin || caller.reader ||
         event.tenant == caller.tenant;
}

bool may_read_closing(const core::Caller& caller, const core::Event& event) {
  return caller.admin || caller.reader || (event.uid && event.uid == caller.peer.user());
}

bool may_ask_about(const core::Caller& caller, const std::string& tenant, const core::Broker& broker) {
  return concerns(caller, tenant, broker) ||
         (!caller.tenant.empty() && broker.belongs(caller.tenant, tenant));
}

bool may_read_account(const core::Caller& caller, const std::string& tenant, const core::Broker& broker) {
  const bool is_own = core::user_of_tenant(tenant) == caller.peer.uid && caller.peer.pod.empty();
  return tenant.empty() || caller.reader || is_own || tenant == caller.tenant ||
         may_ask_about(caller, tenant, broker);
}

Error may_not_follow(const core::Caller& caller, const std::string& tenant) {
  return {Code::kPermissionDenied, "what happens to tenant '" + tenant +
                                       "' is told to its own members and to " + administrators(caller)};
}

Error may_not_ask_about(const core::Caller& caller, const std::string& tenant) {
  return {Code::kPermissionDenied,
          "how tenant '" + tenant +
              "' stands is told to its own members, to those of tenants that belong to it, "
              "and to " +
              administrators(caller)};
}

}  // namespace gpumem::rpc
