#include "daemon/host/config/live_quotas.h"

#include <pwd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "base/log.h"
#include "base/text/printable.h"
#include "base/text/time_format.h"
#include "daemon/core/words/policy.h"
#include "daemon/host/config/quota_overlay.h"

namespace gpumem::host {
namespace {

std::string timestamp() { return to_rfc3339(std::chrono::system_clock::now(), Precision::kSeconds); }

// A command's name is the process's own choice, of any bytes; files and logs are to stay readable.
std::string to_text(const core::Peer& peer) {
  return "uid " + std::to_string(peer.uid) + ", pid " + std::to_string(peer.pid) + ", " +
         printable_ascii(peer.command);
}

Error stale(const QuotaOverlay& overlay, std::uint64_t based_on) {
  std::string words =
      "the quotas are at revision " + std::to_string(overlay.revision) + ", not " + std::to_string(based_on);
  if (overlay.revision != 0) words += ": last changed at " + overlay.changed + " by " + overlay.changed_by;
  return {Code::kAborted, words + "; look at them again (gpumem quota) and repeat the change"};
}

}  // namespace

// A change on its way.
struct LiveQuotas::Step {
  core::QuotaChange change;
  QuotaOverlay next;
  core::Policy before;
  Compiled after;
  core::QuotaOutcome outcome;
};

LiveQuotas::LiveQuotas(Options options)
    : devices_(std::move(options.devices)),
      core_(std::move(options.core)),
      config_(std::move(options.config)),
      store_(std::move(options.store)),
      claims_(std::move(options.claims)) {}

LiveQuotas::~LiveQuotas() { worker_.join(); }

void LiveQuotas::list(std::function<void(Result<core::QuotaList>)> answer) {
  boost::asio::post(worker_, [this, answer = std::move(answer)] { answer(list_now()); });
}

void LiveQuotas::set(core::QuotaChange change, core::Caller caller,
                     std::function<void(Result<core::QuotaOutcome>)> answer) {
  boost::asio::post(worker_, [this, change = std::move(change), caller = std::move(caller),
                              answer = std::move(answer)] { answer(set_now(change, caller)); });
}

Result<core::QuotaList> LiveQuotas::list_now() {
  const MutexLock lock(mutex_);
  const QuotaOverlay& overlay = store_.current();
  core::QuotaList list{overlay.revision, {}};
  const std::vector<core::TenantView> views = core_.tenants();
  auto compiled = compile_policy(config_, devices_, overlay, claims_.current());
  if (!compiled) return compiled.error();
  for (const core::TenantView& view : views) {
    const std::string& device = compiled->policy.devices.at(view.device).uuid;
    list.quotas.push_back(
        {view.name, view.parent, device, view.quota, says_something(overlay, view.name, device)});
  }
  return list;
}

Result<core::QuotaOutcome> LiveQuotas::set_now(const core::QuotaChange& change, const core::Caller& caller) {
  const MutexLock lock(mutex_);
  const QuotaOverlay& current = store_.current();
  if (change.revision != current.revision) return stale(current, change.revision);
  auto before = compile_policy(config_, devices_, current, claims_.current());
  if (!before) return before.error();
  auto next = with_change(current, change, core::uuids_of(before->policy));
  if (!next) return next.error();
  next->revision = current.revision + 1;
  next->changed = timestamp();
  next->changed_by = to_text(caller.peer);
  auto after = compile_policy(config_, devices_, *next, claims_.current());
  if (!after) return after.error();
  Step step{change, std::move(*next), std::move(before->policy), std::move(*after), {}};
  if (auto known = check_tenant(change.tenant, step); !known) return known.error();
  if (auto held = check_limit(change, step.before); !held) return held.error();
  step.outcome = {step.next.revision, lines_of(step.before, current, change),
                  lines_of(step.after.policy, step.next, change)};
  if (change.reset && step.next.tenants == current.tenants)  // nothing was set
    return core::QuotaOutcome{current.revision, step.outcome.before, step.outcome.after};
  const core::QuotaOutcome outcome = step.outcome;
  if (auto done = put_in_force(std::move(step), caller.peer); !done) return done.error();
  spdlog::info("quotas, revision {}: tenant '{}': {} (by {})", outcome.revision, change.tenant,
               difference(outcome), to_text(caller.peer));
  return outcome;
}

// On the disk first, then in the core, then the disk's old file goes: what fails leaves the old quotas in
// both.
Result<void> LiveQuotas::put_in_force(Step step, const core::Peer& by) {
  const std::string cause =
      "tenant '" + step.change.tenant + "': " + difference(step.outcome) + " (by " + to_text(by) + ")";
  const AuditLog::Entry entry{step.next.changed, by, step.change, step.outcome};
  if (auto prepared = store_.prepare(std::move(step.next), entry); !prepared) return prepared.error();
  if (auto applied = core_.apply(std::move(step.after.policy), cause); !applied) {
    store_.discard(timestamp(), applied.error().message);
    return applied.error();
  }
  auto committed = store_.commit();
  if (committed) return {};
  store_.discard(timestamp(), committed.error().message);
  if (auto back = core_.apply(std::move(step.before), "the change could not be stored"); !back)
    spdlog::error("quotas that are not stored stay in force until the next reload: {}", back.error().message);
  return committed.error();
}

// A tenant that the quotas would apply to, or one that they are to be taken from.
Result<void> LiveQuotas::check_tenant(const std::string& name, const Step& step) {
  if (step.change.reset && store_.current().tenants.contains(name)) return {};
  const std::vector<core::TenantView> views = core_.tenants();
  const auto unapplied = std::ranges::find_if(
      step.after.unapplied, [&](const Unapplied& one) { return one.tenant == name && one.device.empty(); });
  std::string why;
  if (unapplied != step.after.unapplied.end()) {
    why = unapplied->why;
  } else if (const auto uid = core::user_of_tenant(name);
             uid && std::ranges::count(views, name, &core::TenantView::name) == 0 &&
             ::getpwuid(*uid) == nullptr) {
    why = "there is no such user on this machine, and none is connected";
  } else if (!uid && std::ranges::count(step.before.tenants, name, &core::TenantRule::name) == 0) {
    why = "the configuration has no such tenant";
  }
  if (why.empty()) return {};
  std::string known;
  for (const core::TenantView& view : views) {
    if (view.device == 0) known += (known.empty() ? "" : ", ") + view.name;
  }
  return Error{Code::kNotFound,
               "tenant '" + name + "': " + why + "; known are: " + (known.empty() ? "none" : known)};
}

std::vector<core::QuotaLine> LiveQuotas::lines_of(const core::Policy& policy, const QuotaOverlay& overlay,
                                                  const core::QuotaChange& change) const {
  const auto rule = std::ranges::find(policy.tenants, change.tenant, &core::TenantRule::name);
  const bool own = rule != policy.tenants.end();
  std::vector<core::QuotaLine> lines;
  for (core::DeviceIndex i = 0; i < policy.devices.size(); ++i) {
    const std::string& device = policy.devices[i].uuid;
    if (change.device.empty() ? policy.devices[i].is_host() : change.device != device) continue;
    if (!own && !policy.others) continue;  // the configuration has no such tenant
    lines.push_back({change.tenant, own ? rule->parent : policy.others_parent, device,
                     own ? rule->quotas[i] : (*policy.others)[i],
                     says_something(overlay, change.tenant, device)});
  }
  return lines;
}

Result<void> LiveQuotas::reload_now(Config config) {
  const MutexLock lock(mutex_);
  auto policy = compile_in_force(config, devices_, store_.current(), claims_.current());
  if (!policy) return policy.error();
  if (auto applied = core_.apply(std::move(*policy), "the configuration was read again"); !applied)
    return applied.error();
  config_ = std::move(config);
  return {};
}

Result<core::Policy> compile_in_force(const Config& config, const std::vector<DeviceFacts>& devices,
                                      const QuotaOverlay& overlay, const pods::PreparedClaims& claims) {
  auto compiled = compile_policy(config, devices, overlay, claims);
  if (!compiled) {
    std::string words = compiled.error().message;
    if (!overlay.tenants.empty())
      words += " (with the quotas set at run time, revision " + std::to_string(overlay.revision) +
               ": gpumem quota lists them)";
    if (!claims.by_uid.empty())
      words += " (with what is prepared for " + std::to_string(claims.tenants.size()) +
               " pods: gpumem claims lists it)";
    return Error{compiled.error().code, std::move(words)};
  }
  for (const Unapplied& one : compiled->unapplied) {
    spdlog::warn("the quotas set at run time, or prepared, for tenant '{}'{} are kept but not applied: {}",
                 one.tenant, one.device.empty() ? "" : " on " + one.device, one.why);
  }
  for (const std::string& words : compiled->warnings) spdlog::warn("{}", words);
  return std::move(compiled->policy);
}

}  // namespace gpumem::host
