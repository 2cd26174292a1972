#pragma once
#include <cuda.h>

#include <map>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace gpumem::shim {

/// The streams whose work is being captured into graphs. Waiting for all work of a context would spoil them.
/// Threads  any.
class Captures {
 public:
  /// `context`  of the stream.
  void begun(CUstream stream, CUcontext context);
  /// It has ended, well or not, or the stream is about to be destroyed.
  void ended(CUstream stream);
  /// The streams went with their context.
  void ended_with(CUcontext context);
  bool any() const;

 private:
  /// The per-thread default stream is another one in each thread.
  using Key = std::pair<CUstream, std::thread::id>;
  static Key key_of(CUstream stream);

  mutable Mutex mutex_;
  std::map<Key, CUcontext> streams_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::shim
