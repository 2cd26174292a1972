#include "client/c/last_error.h"

#include <cstdio>

#include "base/thread_guards.h"
#include "client/c/structs.h"

namespace gpumem::c_abi {
namespace {

constexpr const char* kNoMemory = "the host has no memory left, not even for saying what went wrong";

// Destructors that run later at the thread's end may still free blocks. The pointer and the flag have no
// destructor, so they stay valid.
thread_local bool has_ended = false;
thread_local const char* shown = "";
struct Words {
  std::string text;
  std::shared_ptr<const Denial> denial;
  ~Words() {
    has_ended = true;
    shown = "";
  }
};
thread_local Words words;

const char* keep(std::string message) noexcept {
  if (has_ended) return "the thread ends, and its words are gone";
  if (message.empty()) return kNoMemory;
  words.text = std::move(message);
  return words.text.c_str();
}

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

gpumem_status fail(Code code, std::string message) noexcept {
  shown = keep(std::move(message));
  if (!has_ended) words.denial = nullptr;
  return static_cast<gpumem_status>(code);
}

gpumem_status fail(const GrowError& error) {
  auto denial = error.denial ? std::make_shared<const Denial>(*error.denial) : nullptr;
  const gpumem_status status = fail(error.code, error.message);
  if (!has_ended) words.denial = std::move(denial);
  return status;
}

const char* last_error() noexcept { return shown; }

std::shared_ptr<const Denial> last_denial() noexcept { return has_ended ? nullptr : words.denial; }

void FailureLog::report(gpumem_status status) noexcept {
  const unsigned kind = 1U << (static_cast<unsigned>(status) % 32U);
  if ((__atomic_fetch_or(&reported_, kind, __ATOMIC_RELAXED) & kind) != 0) return;
  const NoPipeSignal no_signal;
  std::fprintf(stderr, "gpumem: %s: %s: %s (further ones of this kind are not said)\n", function_,
               gpumem_status_name(status), last_error());
}

}  // namespace gpumem::c_abi

extern "C" {

const char* gpumem_version(void) noexcept { return GPUMEM_VERSION; }

const char* gpumem_last_error(void) noexcept { return gpumem::c_abi::last_error(); }

const char* gpumem_status_name(int status) noexcept {
  if (status == GPUMEM_OK) return "OK";
  const std::string_view name = gpumem::code_name(static_cast<gpumem::Code>(status));
  return name.empty() ? "UNKNOWN" : name.data();  // a literal, so it ends with a zero
}

// Neither of the two functions about the last denial changes it.
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
