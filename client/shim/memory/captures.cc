#include "client/shim/memory/captures.h"

#include <chrono>

#include "base/thread_guards.h"
#include "client/shim/memory/context.h"

namespace gpumem::shim {
namespace {

// A thread that has waited for longer is in the driver, which may take as long as the device works.
constexpr std::chrono::milliseconds kIntoTheDriver{100};

}  // namespace

Captures::Key Captures::key_of(CUstream stream) {
  return {stream, stream == CU_STREAM_PER_THREAD ? std::this_thread::get_id() : std::thread::id()};
}

bool Captures::begins(CUstream stream, CUcontext context) {
  const NotCancelled whole;
  const MutexLock lock(mutex_);
  const bool is_new = streams_.insert_or_assign(key_of(stream), context).second;
  const auto end = std::chrono::steady_clock::now() + kIntoTheDriver;
  while (waiting_ != 0 && std::chrono::steady_clock::now() < end) nobody_waits_.wait_until(mutex_, end);
  return is_new;
}

bool Captures::begin_to_wait() const {
  const MutexLock lock(mutex_);
  if (!streams_.empty()) return false;
  ++waiting_;
  return true;
}

Captures::Wait::Wait(const Captures& captures) : captures_(captures), is_allowed_(captures.begin_to_wait()) {}

Captures::Wait::~Wait() {
  if (!is_allowed_) return;
  const MutexLock lock(captures_.mutex_);
  if (--captures_.waiting_ == 0) captures_.nobody_waits_.notify_all();
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

CUresult synchronize_beside(const Captures& captures, CUcontext context) {
  const Captures::Wait wait(captures);
  return wait.is_allowed() ? synchronize(context) : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

}  // namespace gpumem::shim
