#include "client/shim/memory/blocks/context.h"

#include <chrono>

#include "base/thread_guards.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuCtxGetCurrent)> real_get_current("cuCtxGetCurrent");
constinit RealCall<decltype(::cuCtxGetDevice)> real_get_device("cuCtxGetDevice");
constinit RealCall<decltype(::cuCtxPushCurrent_v2)> real_push("cuCtxPushCurrent_v2");
constinit RealCall<decltype(::cuCtxPopCurrent_v2)> real_pop("cuCtxPopCurrent_v2");
constinit RealCall<decltype(::cuCtxSynchronize)> real_synchronize("cuCtxSynchronize");
constinit RealCall<CUresult(CUstream)> real_stream_synchronize("cuStreamSynchronize");
constinit RealCall<CUresult(CUstream, CUstreamCaptureStatus*)> real_is_capturing("cuStreamIsCapturing");
constinit RealCall<CUresult(CUstream, CUcontext*)> real_stream_context("cuStreamGetCtx");
constinit RealCall<decltype(::cuDevicePrimaryCtxGetState)> real_primary_state("cuDevicePrimaryCtxGetState");
constinit RealCall<decltype(::cuThreadExchangeStreamCaptureMode)> real_exchange_mode(
    "cuThreadExchangeStreamCaptureMode");
constinit RealCall<decltype(::cuCtxGetStreamPriorityRange)> real_priorities("cuCtxGetStreamPriorityRange");
constinit RealCall<decltype(::cuCtxGetFlags)> real_get_flags("cuCtxGetFlags");
constinit RealCall<CUresult(unsigned)> real_set_flags("cuCtxSetFlags");

constexpr unsigned kSyncMemops = 0x80;  // CU_CTX_SYNC_MEMOPS, of CUDA 12.1

/// What `call` answers where `context` is current.
template <class Call>
CUresult in_context(CUcontext context, const Call& call) {
  CUresult result = real_push(context);
  if (result != CUDA_SUCCESS) return result;
  result = call();
  CUcontext popped = nullptr;
  real_pop(&popped);
  return result;
}

// A thread that has waited for longer is in the driver, which may take as long as the device works.
constexpr std::chrono::milliseconds kIntoTheDriver{100};

}  // namespace

BesideCaptures::BesideCaptures() : exchanged_(real_exchange_mode(&mode_) == CUDA_SUCCESS) {}
BesideCaptures::~BesideCaptures() {
  if (exchanged_) real_exchange_mode(&mode_);
}

// The driver goes on to name a context that was destroyed, and its device. Its properties it does not tell.
CurrentContext CurrentContext::get() {
  CurrentContext current;
  current.result = real_get_device(&current.device);
  if (current.result == CUDA_SUCCESS) current.result = real_get_current(&current.context);
  int least = 0, greatest = 0;
  if (current.result == CUDA_SUCCESS) current.result = real_priorities(&least, &greatest);
  return current;
}

CUresult synchronize(CUcontext context) {
  const BesideCaptures beside;
  CUcontext current = nullptr;
  const CUresult result = real_get_current(&current);
  if (result != CUDA_SUCCESS) return result;
  const auto wait = [] { return real_synchronize(); };
  return current == context ? wait() : in_context(context, wait);
}

CUresult make_synchronous(CUcontext context) {
  return in_context(context, [] {
    unsigned flags = 0;
    const CUresult known = real_get_flags(&flags);
    if (known != CUDA_SUCCESS || (flags & kSyncMemops) != 0) return known;
    return real_set_flags.get() != nullptr ? real_set_flags(flags | kSyncMemops) : CUDA_ERROR_NOT_SUPPORTED;
  });
}

CUresult synchronize_stream(CUstream stream) {
  const BesideCaptures beside;
  return real_stream_synchronize(stream);
}

CUresult is_capturing(CUstream stream, bool* capturing) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = real_is_capturing(stream, &status);
  *capturing = status != CU_STREAM_CAPTURE_STATUS_NONE;
  return result;
}

CUresult device_of(CUcontext context, CUdevice* device) {
  return in_context(context, [device] { return real_get_device(device); });
}

CUresult device_of(CUstream stream, CUdevice* device) {
  if (!is_made(stream)) return real_get_device(device);
  CUcontext context = nullptr;
  const CUresult result = real_stream_context(stream, &context);
  return result == CUDA_SUCCESS ? device_of(context, device) : result;
}

// As in CurrentContext::get().
bool is_there(CUcontext context) {
  int least = 0, greatest = 0;
  return in_context(context, [&] { return real_priorities(&least, &greatest); }) == CUDA_SUCCESS;
}

bool is_device(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  return real_primary_state(device, &flags, &active) == CUDA_SUCCESS;
}

bool is_primary_active(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  return real_primary_state(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

Captures::Key Captures::key_of(CUstream stream) {
  return {stream, stream == CU_STREAM_PER_THREAD ? std::this_thread::get_id() : std::thread::id()};
}

bool Captures::begins(CUstream stream, CUcontext context) {
  const NotCancelled whole;
  const MutexLock lock(mutex_);
  const bool is_new = streams_.insert_or_assign(key_of(stream), context).second;
  note();
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
  note();
}

void Captures::ended_with(CUcontext context) {
  const MutexLock lock(mutex_);
  std::erase_if(streams_, [context](const auto& one) { return one.second == context; });
  note();
}

void Captures::move(CUcontext from, CUcontext to) {
  const MutexLock lock(mutex_);
  for (auto& [stream, context] : streams_)
    if (context == from) context = to;
}

CUresult synchronize_beside(const Captures& captures, CUcontext context) {
  const Captures::Wait wait(captures);
  return wait.is_allowed() ? synchronize(context) : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

}  // namespace gpumem::shim
