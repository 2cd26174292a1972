#include "client/shim/memory/outside/pinned.h"

#include "client/session/connection.h"
#include "client/shim/memory/session/settings.h"

namespace gpumem::shim {
namespace {

// No room within a limit, or more than the machine has.
bool is_refusal(const Error& error) {
  return error.code == Code::kResourceExhausted || error.code == Code::kInvalidArgument;
}

}  // namespace

CUresult Pinned::charge_outside(const char* call, Bytes bytes) {
  auto declared = declare_more(bytes, trim_driver_ ? lane::Charge::kProbe : 0);
  if (!declared && trim_driver_) {
    trim_driver_();
    declared = declare_more(bytes, 0);
  }
  if (declared) return CUDA_SUCCESS;
  messages_.tell(std::string(call) + " of " + to_string(bytes) + " is refused: " + declared.error().message);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

Bytes Pinned::charge_outside_up_to(Bytes bytes) {
  return declare_more(bytes, lane::Charge::kProbe) ? bytes : Bytes{};
}

void Pinned::discharge_outside(Bytes bytes) {
  const MutexLock lock(mutex_);
  all_ -= bytes;
  static_cast<void>(declare(all_, 0));
}

void Pinned::tell_refusal_of_driver(const char* call, Bytes bytes, CUresult answered) {
  if (answered != CUDA_ERROR_OUT_OF_MEMORY) return;
  messages_.tell(std::string(call) + " of " + to_string(bytes) +
                 " is refused by the driver: the machine has no such memory");
}

Result<void> Pinned::declare_more(Bytes bytes, std::uint64_t flags) {
  const MutexLock lock(mutex_);
  const auto all = all_.plus(bytes);
  if (!all) return Error{Code::kResourceExhausted, "no machine has so much memory"};
  auto declared = declare(*all, lane::Charge::kBounded | flags);
  if (!declared && is_refusal(declared.error())) return declared;
  all_ = *all;
  return {};
}

// If the broker does not answer, the program pins the memory all the same: the later declaration is not to be
// refused.
Result<void> Pinned::declare(Bytes all, std::uint64_t flags) {
  const auto connection = session_.usable();
  if (!connection) return connection.error();
  const auto store = (*connection)->find_host_store();
  if (!store) return {};
  client::Lane& lane = (*connection)->lane();
  const auto told = lane.call(lane::Charge{store->index, all.count, flags});
  if (told) return {};
  if (is_away(told.error())) lane.tell_later(lane::Charge{store->index, all.count, 0});
  return told.error();
}

}  // namespace gpumem::shim
