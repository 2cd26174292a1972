#include "client/shim/memory/captures.h"

namespace gpumem::shim {

Captures::Key Captures::key_of(CUstream stream) {
  return {stream, stream == CU_STREAM_PER_THREAD ? std::this_thread::get_id() : std::thread::id()};
}

void Captures::begun(CUstream stream, CUcontext context) {
  const MutexLock lock(mutex_);
  streams_.insert_or_assign(key_of(stream), context);
}

void Captures::ended(CUstream stream) {
  const MutexLock lock(mutex_);
  streams_.erase(key_of(stream));
}

void Captures::ended_with(CUcontext context) {
  const MutexLock lock(mutex_);
  std::erase_if(streams_, [context](const auto& one) { return one.second == context; });
}

bool Captures::any() const {
  const MutexLock lock(mutex_);
  return !streams_.empty();
}

}  // namespace gpumem::shim
