#include "client/slice/driver_streams.h"

#include <algorithm>

#include "cuda/memory.h"

namespace gpumem::client {
namespace {

CUstream stream_of(StreamHandle handle) { return static_cast<CUstream>(handle); }
bool is_legacy(CUstream stream) { return stream == nullptr || stream == CU_STREAM_LEGACY; }
bool is_per_thread(CUstream stream) { return stream == CU_STREAM_PER_THREAD; }
bool is_default(CUstream stream) { return is_legacy(stream) || is_per_thread(stream); }
/// The one that was noted, the primary one as it was, and as it is.
constexpr int kAttempts = 3;
/// None of the context's work runs, or will run, if the call was made in that context.
bool has_ended(CUresult result) { return cuda::is_context_gone(result) || cuda::is_broken(result); }
/// Whether the work of an event is over.
bool is_over(CUresult result) { return cuda::is_gone(result) || cuda::is_broken(result); }

/// Why a context could not be entered. If a context is broken then, it is the one that was current before.
CUresult reason(const cuda::EnteredContext& entered) {
  return cuda::is_broken(entered.result()) ? CUDA_ERROR_UNKNOWN : entered.result();
}

Error told(const cuda::Driver& driver, CUresult result, const char* call) {
  Error error = driver.error(result, call);
  if (!cuda::is_of_capture(result)) return error;
  return {Code::kFailedPrecondition, error.message + ": a graph is being captured"};
}

}  // namespace

// If the event's context was destroyed meanwhile, its handle may belong to another event.
DriverStreams::~DriverStreams() {
  for (Spot& spot : spots_) {
    const cuda::EnteredContext alive(driver_, spot.context);
    if (alive.result() != CUDA_SUCCESS) spot.event.abandon();
    spot.event = cuda::Event();
  }
}

Result<DriverStreams::Id> DriverStreams::meet(StreamHandle handle) {
  const CUstream stream = stream_of(handle);
  if (is_legacy(stream)) {
    auto found =
        legacy_ == nullptr ? driver_.check(find_current(legacy_), "cuCtxGetCurrent") : Result<void>();
    note(legacy_);
    return found ? Result<Id>(Id{}) : found.error();
  }
  CUcontext context = nullptr;
  CUresult result =
      is_default(stream) ? find_context_of_default(stream, context) : ask_context(stream, context);
  unsigned long long id = 0;
  if (result == CUDA_SUCCESS && context != nullptr && driver_.api().cuStreamGetId != nullptr) {
    const cuda::EnteredContext entered(driver_, context);
    result = entered.result() == CUDA_SUCCESS ? driver_.api().cuStreamGetId(stream, &id) : entered.result();
  }
  if (result != CUDA_SUCCESS)
    return driver_.error(result, "cuStreamGetId").in("this is no stream that can be used");
  if (!is_default(stream)) met_[stream] = {context, Id{id}};
  return Id{id};
}

void DriverStreams::forget(StreamHandle stream, Id id) {
  const auto met = met_.find(stream_of(stream));
  if (met != met_.end() && met->second.id == id) met_.erase(met);
}

// Work ends with its context, which only a call in that context tells. A default stream may belong to a new
// context by now.
Result<DriverStreams::Mark> DriverStreams::mark(StreamHandle handle) {
  const cuda::BesideCaptures beside(driver_);
  const CUstream stream = stream_of(handle);
  CUresult result = CUDA_SUCCESS;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    CUcontext context = nullptr;
    Spot* spot = nullptr;
    result = find_context(stream, context);
    if (result != CUDA_SUCCESS) return told(driver_, result, "cuStreamGetCtx");
    if (context == nullptr) return kNoWork;
    result = record(stream, context, spot);
    if (result == CUDA_SUCCESS) return Mark{reinterpret_cast<std::uint64_t>(spot)};
    if (!cuda::is_context_gone(result)) break;
    give_up(context);
    if (!is_default(stream)) break;
  }
  if (has_ended(result)) return kNoWork;
  return told(driver_, result, "cuEventRecord");
}

bool DriverStreams::reached(Mark mark) {
  if (mark == kNoWork) return true;
  const cuda::BesideCaptures beside(driver_);
  return ask_event(spot_of(mark), driver_.api().cuEventQuery) == CUDA_SUCCESS;
}

Result<void> DriverStreams::order(StreamHandle handle, Mark mark) {
  if (mark == kNoWork) return {};
  const cuda::BesideCaptures beside(driver_);
  const CUstream stream = stream_of(handle);
  CUcontext context = nullptr;
  CUresult result = find_context(stream, context);
  if (result == CUDA_SUCCESS && context == nullptr) {
    return Error{Code::kFailedPrecondition, "no context is there yet for the default stream"};
  }
  if (result == CUDA_SUCCESS) {
    const cuda::EnteredContext entered(driver_, context);
    result = entered.result();
    if (result == CUDA_SUCCESS) result = check_not_captured(stream);
    if (result == CUDA_SUCCESS) {
      result = driver_.api().cuStreamWaitEvent(stream, spot_of(mark).event.get(), CU_EVENT_WAIT_DEFAULT);
    }
  }
  if (result == CUDA_SUCCESS || (is_over(result) && reached(mark))) return {};
  return told(driver_, result, "cuStreamWaitEvent");
}

Result<void> DriverStreams::wait(Mark mark) {
  if (mark == kNoWork) return {};
  const cuda::BesideCaptures beside(driver_);
  const CUresult result = ask_event(spot_of(mark), driver_.api().cuEventSynchronize);
  if (result == CUDA_SUCCESS) return {};
  return told(driver_, result, "cuEventSynchronize");
}

void DriverStreams::drop(Mark mark) {
  if (mark == Mark{} || mark == kNoWork) return;
  Spot& spot = spot_of(mark);
  free_[spot.context].push_back(&spot);
}

Result<void> DriverStreams::wait_for_contexts() {
  const cuda::BesideCaptures beside(driver_);
  CUcontext of_default = nullptr;
  (void)find_context_of_default(nullptr, of_default);  // blocks in use may be its, though it was never marked
  Result<void> done;
  for (const CUcontext context : contexts_) {
    const cuda::EnteredContext entered(driver_, context);
    const CUresult result =
        entered.result() == CUDA_SUCCESS ? driver_.api().cuCtxSynchronize() : reason(entered);
    if (result != CUDA_SUCCESS && !has_ended(result)) done = told(driver_, result, "cuCtxSynchronize");
  }
  return done;
}

DriverStreams::Spot& DriverStreams::spot_of(Mark mark) {
  return *reinterpret_cast<Spot*>(static_cast<std::uint64_t>(mark));
}

// The calling thread's context may be none, destroyed or broken. That says nothing about the event's.
CUresult DriverStreams::ask_event(const Spot& spot, CUresult (*call)(CUevent)) const {
  const CUresult asked = call(spot.event.get());
  if (!is_over(asked)) return asked;
  const cuda::EnteredContext entered(driver_, spot.context);
  const CUresult result = entered.result() == CUDA_SUCCESS ? call(spot.event.get()) : reason(entered);
  return is_over(result) ? CUDA_SUCCESS : result;
}

CUresult DriverStreams::find_context(CUstream stream, CUcontext& context) {
  if (is_default(stream)) return find_context_of_default(stream, context);
  const auto met = met_.find(stream);
  if (met == met_.end()) return ask_context(stream, context);
  context = met->second.context;
  return CUDA_SUCCESS;
}

CUresult DriverStreams::find_context_of_default(CUstream stream, CUcontext& context) {
  context = is_legacy(stream) ? legacy_ : nullptr;
  if (context != nullptr) return CUDA_SUCCESS;
  CUresult result = find_current(context);
  if (result == CUDA_SUCCESS && context == nullptr) result = find_primary(context);
  if (result == CUDA_SUCCESS && context == nullptr) {
    const auto usable = std::ranges::find_if(contexts_, [this](CUcontext one) { return can_enter(one); });
    if (usable != contexts_.end()) context = *usable;
  }
  if (result == CUDA_SUCCESS && is_legacy(stream)) legacy_ = context;
  note(context);
  return result;
}

// The driver answers only a thread with a context that can be used, whichever it is.
CUresult DriverStreams::ask_context(CUstream stream, CUcontext& context) {
  CUresult result = driver_.api().cuStreamGetCtx(stream, &context);
  if (has_ended(result)) {
    std::vector<CUcontext> usable = contexts_;
    CUcontext primary = nullptr;
    if (find_primary(primary) == CUDA_SUCCESS && primary != nullptr) usable.push_back(primary);
    for (const CUcontext other : usable) {
      const cuda::EnteredContext entered(driver_, other);
      if (entered.result() != CUDA_SUCCESS) continue;
      result = driver_.api().cuStreamGetCtx(stream, &context);
      if (!has_ended(result)) break;
    }
  }
  if (result == CUDA_SUCCESS) note(context);
  return result;
}

bool DriverStreams::can_enter(CUcontext context) const {
  return cuda::EnteredContext(driver_, context).result() == CUDA_SUCCESS;
}

void DriverStreams::note(CUcontext context) {
  if (context == nullptr || std::ranges::find(contexts_, context) != contexts_.end()) return;
  std::erase_if(contexts_, [this](CUcontext known) { return !can_enter(known); });  // programs make new ones
  contexts_.push_back(context);
}

// Only a context of this device counts. Another current context belongs to other work.
CUresult DriverStreams::find_current(CUcontext& context) const {
  CUcontext current = nullptr;
  CUdevice device = -1;
  const CUresult result = driver_.api().cuCtxGetCurrent(&current);
  if (result != CUDA_SUCCESS || current == nullptr) return has_ended(result) ? CUDA_SUCCESS : result;
  CUresult known = driver_.api().cuCtxGetDevice(&device);
  if (known == CUDA_SUCCESS) known = cuda::check_current(driver_);
  if (known == CUDA_SUCCESS && device == ordinal_) context = current;
  return is_over(known) ? CUDA_SUCCESS : known;
}

// No reference is kept: the context ends when the program gives it up.
CUresult DriverStreams::find_primary(CUcontext& context) {
  unsigned flags = 0;
  int active = 0;
  const CUresult asked = driver_.api().cuDevicePrimaryCtxGetState(ordinal_, &flags, &active);
  if (asked != CUDA_SUCCESS || active == 0) return asked;
  const CUresult held = driver_.api().cuDevicePrimaryCtxRetain(&context, ordinal_);
  return held == CUDA_SUCCESS ? driver_.api().cuDevicePrimaryCtxRelease(ordinal_) : held;
}

void DriverStreams::give_up(CUcontext context) {
  if (auto old = free_.extract(context); !old.empty()) {
    for (Spot* spot : old.mapped()) spot->event.abandon();
    blank_.insert(blank_.end(), old.mapped().begin(), old.mapped().end());
  }
  if (context == legacy_) legacy_ = nullptr;
  std::erase(contexts_, context);
}

CUresult DriverStreams::record(CUstream stream, CUcontext context, Spot*& spot) {
  const cuda::EnteredContext entered(driver_, context);
  if (entered.result() != CUDA_SUCCESS) return reason(entered);
  if (const CUresult captured = check_not_captured(stream); captured != CUDA_SUCCESS) return captured;
  std::vector<Spot*>& ready = free_[context];
  while (!ready.empty()) {
    spot = ready.back();
    const CUresult recorded = record_in(*spot, stream);
    if (recorded != CUDA_SUCCESS && !cuda::is_gone(recorded)) return recorded;
    ready.pop_back();
    if (recorded == CUDA_SUCCESS) return recorded;
    spot->event.abandon();  // belongs to an earlier context at this address
    blank_.push_back(spot);
  }
  Spot& fresh = new_spot(context);
  CUresult result = cuda::Event::create(driver_, fresh.event);
  if (result == CUDA_SUCCESS) result = record_in(fresh, stream);
  if (result != CUDA_SUCCESS) {
    fresh.event = cuda::Event();
    blank_.push_back(&fresh);
  }
  spot = &fresh;
  return result;
}

// Another thread may begin to capture the stream after it was asked about that. Such an event belongs to the
// graph, and would never be reached. A query tells that, but would spoil a capture that still goes on, so the
// stream is asked first: a capture that begins after this answer has not taken the event.
CUresult DriverStreams::record_in(const Spot& spot, CUstream stream) const {
  const CUresult recorded = driver_.api().cuEventRecord(spot.event.get(), stream);
  if (recorded != CUDA_SUCCESS) return recorded;
  if (const CUresult captured = check_not_captured(stream); captured != CUDA_SUCCESS) return captured;
  const CUresult asked = driver_.api().cuEventQuery(spot.event.get());
  return cuda::is_of_capture(asked) ? asked : CUDA_SUCCESS;
}

DriverStreams::Spot& DriverStreams::new_spot(CUcontext context) {
  if (blank_.empty()) blank_.push_back(&spots_.emplace_back());
  Spot& spot = *blank_.back();
  blank_.pop_back();
  spot.context = context;
  return spot;
}

CUresult DriverStreams::check_not_captured(CUstream stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = driver_.api().cuStreamIsCapturing(stream, &status);
  if (asked != CUDA_SUCCESS || status == CU_STREAM_CAPTURE_STATUS_NONE) return asked;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

}  // namespace gpumem::client
