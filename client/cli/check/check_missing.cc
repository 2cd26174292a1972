#include <algorithm>

#include "base/text/missing_memory.h"
#include "client/cli/check/check.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/views/text.h"

// The memory of pools that the driver does not give at present: who uses it, and whose guarantee lacks it.
// Contexts have some of it, and some had none.

namespace gpumem::cli {
namespace {

using State = Finding::State;

constexpr int kNamed = 3;

// `one, two, three and 4 more`.
std::string enumeration(const std::vector<std::string>& all) {
  std::string text;
  for (std::size_t i = 0; i < all.size() && i < kNamed; ++i) text += (i == 0 ? "" : ", ") + all[i];
  if (all.size() > kNamed) text += " and " + std::to_string(all.size() - kNamed) + " more";
  return text;
}

// The processes that hold memory past the broker, by the broker's last look; empty: none is known.
std::string users_of(const v1::DeviceStatus& device, const Result<v1::ReconcileResponse>& seen) {
  if (!seen) return "";
  std::vector<std::string> users;
  for (const v1::Reconciliation& one : seen->devices()) {
    if (one.device() != device.uuid()) continue;
    for (const v1::ForeignProcess& process : one.processes())
      users.push_back(printable(process.command()) + " (pid " + std::to_string(process.pid()) + ", " +
                      user_name(process.uid()) + ") " + to_string(Bytes{process.bytes()}));
  }
  return enumeration(users);
}

Finding contexts_of(const v1::DeviceStatus& device, const std::string& name) {
  return {"contexts", State::kOk,
          name + ": " + to_string(Bytes{device.contexts()}) + " of the pool of " +
              to_string(Bytes{device.pool()}) + " were given to the driver for contexts of programs",
          ""};
}

Finding context_refused_of(const std::string& words) {
  return {"contexts_refused", State::kWarn, words,
          "end programs or have them give memory back, or leave the driver more of the device: a smaller "
          "`reserve` in gpumemd.toml; see gpumem why"};
}

Finding missing_of(const v1::DeviceStatus& device, const std::string& name,
                   const Result<v1::ReconcileResponse>& seen) {
  const std::string users = users_of(device, seen);
  return {"missing", State::kWarn,
          name + ": " + to_string(Bytes{device.missing()}.minus({device.contexts()})) + " of the pool of " +
              to_string(Bytes{device.pool()}) + " are missing, " + missing_because(device.uuid()) +
              (users.empty() ? "" : ": " + users) + ". The pool grows when they free memory",
          device.uuid() == kHostStore
              ? "end programs that use much memory of the machine, or mend what the broker's log names"
              : "end programs that take memory past the broker, or start them by gpumem run; see gpumem "
                "reconcile --now"};
}

// Guarantees beyond the memory that is there lack it even if all borrowers give theirs back.
void check_guarantees(const v1::DeviceStatus& device, const std::string& name,
                      const Result<v1::ListTenantsResponse>& tenants, std::vector<Finding>& findings) {
  const Bytes guaranteed{device.guaranteed()};
  const Bytes uncovered = guaranteed.minus(Bytes{device.pool()}.minus({device.missing()}));
  if (uncovered.is_zero()) return;
  std::vector<std::string> lacking;
  const auto note = [&](const v1::TenantUsage& one) {
    if (one.device() != device.uuid() || one.charged() >= one.guarantee()) return;
    lacking.push_back("tenant '" + printable(one.tenant()) + "' has " + to_string(Bytes{one.charged()}) +
                      " of " + to_string(Bytes{one.guarantee()}));
  };
  if (tenants) std::ranges::for_each(tenants->tenants(), note);
  findings.push_back({"guarantees", State::kWarn,
                      name + ": of the " + to_string(guaranteed) + " that are guaranteed, " +
                          to_string(uncovered) + " are not covered until then" +
                          (lacking.empty() ? "" : ": " + enumeration(lacking)),
                      ""});
}

}  // namespace

void check_missing(const Monitor& monitor, const v1::GetStatusResponse& status,
                   std::vector<Finding>& findings) {
  Layout layout;
  layout.devices = uuids_of(status);
  for (const v1::DeviceStatus& device : status.devices()) {
    const std::string name = layout.device(device.uuid());
    const std::string refused = contexts_refused_text(device, std::chrono::system_clock::now(), layout);
    if (!refused.empty()) findings.push_back(context_refused_of(refused));
    if (device.contexts() != 0) findings.push_back(contexts_of(device, name));
    if (device.missing() == device.contexts()) continue;
    findings.push_back(missing_of(device, name, monitor.reconcile(false)));
    check_guarantees(device, name, monitor.tenants(), findings);
  }
}

}  // namespace gpumem::cli
