#include "client/shim/memory/outside/pinned.h"

#include "client/session/connection.h"
#include "client/shim/memory/session/charges.h"

namespace gpumem::shim {

CUresult Pinned::charge(const char* call, Bytes bytes) {
  const MutexLock lock(mutex_);
  const auto all = all_.plus(bytes);
  if (!all) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto declared = declare(*all, bytes);
  if (!declared && declared.error().code == Code::kResourceExhausted) {
    messages_.tell(std::string(call) + " of " + to_string(bytes) +
                   " is refused: " + declared.error().message + " (host_limit)");
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  all_ = *all;
  return CUDA_SUCCESS;
}

void Pinned::discharge_outside(Bytes bytes) {
  const MutexLock lock(mutex_);
  all_ -= bytes;
  static_cast<void>(declare(all_, {}));
}

Result<void> Pinned::declare(Bytes all, Bytes more) {
  const auto connection = session_.usable();
  if (!connection) return connection.error();
  const auto store = (*connection)->find_host_store();
  if (!store) return {};
  if (!more.is_zero()) {
    const auto figures = (*connection)->broker_figures();
    if (!figures) return figures.error();
    if (auto room = check_room(figures->devices.at(store->index), more); !room) return room;
  }
  const auto told = (*connection)->lane().call_or_tell_later(lane::Charge{store->index, all.count});
  return told ? Result<void>() : told.error();
}

}  // namespace gpumem::shim
