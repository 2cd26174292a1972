#include "client/c/last_error.h"
#include "client/c/structs.h"

// The denial of the calling thread's last failure. Neither function changes what it reports.

namespace gpumem::c_abi {
namespace {

gpumem_denial plain(const Denial& known) {
  return {.struct_size = sizeof(gpumem_denial),
          .reason = static_cast<int>(known.reason),
          .device = known.device.c_str(),
          .tenant = known.tenant.c_str(),
          .asked = known.asked.count,
          .asked_least = known.asked_least.count,
          .tenant_limit = known.tenant_limit.count,
          .tenant_guarantee = known.tenant_guarantee.count,
          .tenant_charged = known.tenant_charged.count,
          .pool = known.pool.count,
          .free = known.free.count,
          .kept_for_others = known.kept_for_others.count,
          .charged_to_others = known.charged_to_others.count,
          .waiters_ahead = known.waiters_ahead,
          .waited_ms = known.waited.count(),
          .wait_limit_ms = known.wait_limit.count(),
          .limiting_tenant = known.limiting_tenant.c_str(),
          .limiting_limit = known.limiting_limit.count,
          .limiting_charged = known.limiting_charged.count,
          .returning = known.returning.count,
          .asked_back = known.asked_back.count,
          .soonest_ms = known.soonest.within ? known.soonest.within->count() : -1,
          .soonest_why = known.soonest.why.c_str()};
}

/// False: no more of them.
bool visit(const std::vector<Denial::Holder>& holders, bool other, gpumem_holder_visitor visitor,
           void* context) {
  for (const Denial::Holder& known : holders) {
    const gpumem_holder holder{.struct_size = sizeof(gpumem_holder),
                               .is_other_tenant = other,
                               .session = known.session,
                               .pid = known.pid,
                               .command = known.command.c_str(),
                               .charged = known.charged.count,
                               .tenant = known.tenant.c_str()};
    if (!visitor(&holder, context)) return false;
  }
  return true;
}

}  // namespace
}  // namespace gpumem::c_abi

extern "C" {

bool gpumem_last_denial(gpumem_denial* denial) noexcept {
  const auto known = gpumem::c_abi::last_denial();
  if (!known || denial == nullptr) return false;
  const std::size_t size = denial->struct_size;
  if (size < sizeof(size) || size > gpumem::c_abi::kLargestStruct) return false;
  return gpumem::c_abi::write_struct(gpumem::c_abi::plain(*known), denial, "gpumem_denial").has_value();
}

void gpumem_last_denial_holders(gpumem_holder_visitor visitor, void* context) noexcept {
  const auto known = gpumem::c_abi::last_denial();  // a visitor may fail, and so replace it
  if (!known || visitor == nullptr) return;
  if (gpumem::c_abi::visit(known->holders, false, visitor, context))
    (void)gpumem::c_abi::visit(known->other_tenants, true, visitor, context);
}

}  // extern "C"
