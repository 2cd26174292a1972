#include "client/shim/memory/imports.h"

#include <algorithm>

#include "client/connection.h"
#include "client/import_state.h"

namespace gpumem::shim {

namespace {

/// In another session if the process's is lost, which may turn out by the attempt.
Result<std::unique_ptr<client::ImportState>> import_in(Session& session, const Imports::Bytes64& handle) {
  for (;;) {
    auto connection = session.usable();
    if (!connection) return connection.error();
    if (*connection == nullptr) return Error{Code::kFailedPrecondition, "cuInit has failed"};
    auto opened = client::ImportState::open(*connection, handle);
    if (opened || !(*connection)->lane().is_closed()) return opened;
  }
}

}  // namespace

struct Imports::Open {
  std::unique_ptr<client::ImportState> memory;
  unsigned count = 0;
};

Imports::Imports() = default;
Imports::~Imports() = default;

bool Imports::is_own(const Bytes64& handle) const {
  const MutexLock lock(mutex_);
  return std::ranges::any_of(exported_, [&](const auto& one) { return one.second == handle; });
}

Result<CUdeviceptr> Imports::open(Session& session, const Bytes64& handle) {
  const MutexLock lock(mutex_);
  Open& known = open_[handle];
  if (known.count == 0) {
    auto opened = import_in(session, handle);
    if (!opened) {
      open_.erase(handle);
      return opened.error();
    }
    known.memory = std::move(*opened);
  }
  ++known.count;
  return known.memory->address();
}

bool Imports::close(CUdeviceptr address) {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find_if(
      open_, [address](const auto& one) { return one.second.memory->address() == address; });
  if (found == open_.end()) return false;
  if (--found->second.count == 0) open_.erase(found);
  return true;
}

}  // namespace gpumem::shim
