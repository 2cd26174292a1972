#include "client/shim/memory/captures.h"

namespace gpumem::shim {

Captures::Key Captures::key_of(CUstream stream) {
  return {stream, stream == CU_STREAM_PER_THREAD ? std::this_thread::get_id() : std::thread::id()};
}

void Captures::begun(CUstream stream) {
  const MutexLock lock(mutex_);
  streams_.insert(key_of(stream));
}

void Captures::ended(CUstream stream) {
  const MutexLock lock(mutex_);
  streams_.erase(key_of(stream));
}

bool Captures::any() const {
  const MutexLock lock(mutex_);
  return !streams_.empty();
}

}  // namespace gpumem::shim
