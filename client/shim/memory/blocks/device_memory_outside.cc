#include <algorithm>
#include <thread>

#include "base/thread_guards.h"
#include "client/session/connection.h"
#include "client/shim/memory/blocks/device_memory.h"
#include "client/slice/borrower.h"

// Memory that the driver takes by itself, for the program's calls and for contexts.

namespace gpumem::shim {
namespace {

constexpr std::chrono::seconds kReturnPatience{1};
constexpr std::chrono::milliseconds kLookAgain{5};

}  // namespace

// Idle memory, of which `idle` are enough, counts for the tenant, too: it goes back before `ask` is refused.
// `ask_last` may wait for what others hold.
template <class Ask, class AskLast>
CUresult DeviceMemory::ask_tenant(const char* call, Bytes bytes, Bytes idle, const Ask& ask,
                                  const AskLast& ask_last) {
  const NotCancelled whole;
  for (;;) {
    Slices& asked = slices();
    Result<void> granted = ask(asked);
    if (!granted) {
      const auto given = asked.engine().trim(idle);
      trim_driver();
      granted = ask(asked);
      // Returned memory stays charged until the driver has freed it.
      const auto end = std::chrono::steady_clock::now() + kReturnPatience;
      while (!granted && given && !given->is_zero() && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        granted = ask(asked);
      }
      if (!granted) granted = ask_last(asked);
    }
    if (granted) return CUDA_SUCCESS;
    if (is_replaced(asked)) continue;
    Error why = granted.error();
    if (leave_to_driver(why)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (why.code != Code::kCancelled) why.code = Code::kResourceExhausted;
    return refuse(call, bytes, GrowError(std::move(why)));
  }
}

// The broker keeps no queue for what it does not lend: who waits looks whether others have given something
// back.
template <class Ask>
Result<void> DeviceMemory::look_patiently(Slices& to, Bytes bytes, const Ask& ask) {
  const auto begun = WaitPolicy::Clock::now();
  Result<void> granted = ask(to);
  const auto may_make_room = [&](const Error& refused) {
    const auto figures = figures_of(to);
    return refused.code == Code::kResourceExhausted && figures &&
           budget_.used() <= Bytes{figures->tenant_limit};
  };
  const bool may_come_true = !granted && (is_away(granted.error()) || may_make_room(granted.error()));
  const auto wait = may_come_true ? waits_.wait_for(bytes, begun) : std::chrono::milliseconds::zero();
  if (wait.count() == 0) return granted;
  const client::SignalWatch signals;
  const client::WaitNotice notice(waits_told_, wait_text(granted.error(), bytes, wait), begun);
  while (!granted && WaitPolicy::Clock::now() - begun < wait && !is_replaced(to)) {
    if (signals.seen() != 0) {
      granted = signals.error();
      break;
    }
    std::this_thread::sleep_for(kLookAgain);
    granted = ask(to);
  }
  if (!granted) waits_.timed_out(bytes, WaitPolicy::Clock::now());
  return granted;
}

CUresult DeviceMemory::charge_outside(const char* call, Bytes bytes) {
  const CUresult reserved = reserve(call, bytes);
  if (reserved != CUDA_SUCCESS) return reserved;
  const auto declare = [&](const Slices&) { return outside_.more(bytes); };
  const CUresult declared =
      ask_tenant(call, bytes, bytes, declare, [&](Slices& to) { return look_patiently(to, bytes, declare); });
  if (declared != CUDA_SUCCESS) release(bytes);
  return declared;
}

CUresult DeviceMemory::check_context(const char* call, Bytes bytes) {
  const auto look = [&](const Slices& of) -> Result<void> {
    const auto figures = figures_of(of);
    // Where the figures are not to be had, the driver decides.
    return figures ? check_room(*figures, bytes) : Result<void>();
  };
  return ask_tenant(call, bytes, limit(), look, [&](Slices& to) { return look_patiently(to, bytes, look); });
}

// A context that fails is announced again, and the broker expects it to take more.
CUresult DeviceMemory::make_context(const char* call, const std::function<CUresult()>& make) {
  using std::chrono::milliseconds;
  const auto begun = WaitPolicy::Clock::now();
  const milliseconds wait = waits_.wait_for({}, begun);
  for (std::size_t attempt = 1;; ++attempt) {
    const auto waited = std::chrono::ceil<milliseconds>(WaitPolicy::Clock::now() - begun);
    const CUresult announced = announce_context(call, std::max(wait - waited, milliseconds::zero()));
    if (announced != CUDA_SUCCESS) return announced;
    const CUresult made = make();
    tell_context(made);
    if (made != CUDA_ERROR_OUT_OF_MEMORY) return made;
    if (attempt < lane::ContextDone::kAttempts) continue;
    messages_.tell(std::string(call) + ": the driver has no memory for a context; see `gpumem why`");
    return made;
  }
}

CUresult DeviceMemory::announce_context(const char* call, std::chrono::milliseconds wait) {
  const client::WaitNotice notice(waits_told_, wait_text({}, wait));
  const auto ask = [](const Slices& of, const Attempt& attempt) -> Result<void, GrowError> {
    const std::chrono::nanoseconds patience = attempt.wait;
    const auto index = of.connection().device_index(of.engine().properties().device);
    if (!index) return GrowError(index.error());
    client::Lane& lane = of.connection().lane();
    return lane.announce_context({static_cast<std::uint64_t>(patience.count()), *index},
                                 {lane.deadline(), {}, client::Lane::Clock::now() + patience});
  };
  const auto announced = ask_usable(ask, Attempt{.wait = wait});
  if (announced || is_away(announced.error())) return CUDA_SUCCESS;
  waits_.timed_out({}, WaitPolicy::Clock::now());
  return refuse(call, {}, announced.error());
}

void DeviceMemory::tell_context(CUresult made) {
  const auto index = slices().connection().device_index(slices().engine().properties().device);
  const bool lacks_memory = made == CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t outcome = made == CUDA_SUCCESS ? 0 : lacks_memory ? 2 : 1;
  if (index) (void)slices().connection().lane().context_done({*index, outcome});
}

Bytes DeviceMemory::charge_outside_up_to(Bytes bytes) {
  const Bytes reserved = budget_.reserve_up_to(bytes);
  const Bytes held = shared_limit_->take({}, reserved);
  budget_.release(reserved - held);
  if (held.is_zero() || outside_.more(held)) return held;
  release(held);
  return {};
}

void DeviceMemory::discharge_outside(Bytes bytes) {
  const auto declared = outside_.less(bytes);
  if (!declared) messages_.tell("the broker was not told of freed memory: " + declared.error().message);
  release(bytes);
}

}  // namespace gpumem::shim
