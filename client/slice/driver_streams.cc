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
  CUcontext context = nullptr;
  if (is_legacy(stream)) {
    if (legacy_.handle != nullptr) return Id{};
    auto found = driver_.check(find_current(context), "cuCtxGetCurrent");
    if (found && context != nullptr) found = driver_.check(name(context, legacy_), "cuCtxGetId");
    return found ? Result<Id>(Id{}) : found.error();
  }
  if (!is_default(stream)) {
    const auto met = met_.find(stream);
    if (met != met_.end() && id_of(stream) == met->second.id) return met->second.id;
  }
  cuda::ContextName named;
  Id id{};
  CUresult result = CUDA_SUCCESS;
  if (is_default(stream)) {
    result = find_context_of_default(stream, named, &id);
  } else if (result = ask_context(stream, context); result == CUDA_SUCCESS) {
    result = name(context, named, stream, &id);
  }
  if (result != CUDA_SUCCESS)
    return driver_.error(result, "cuStreamGetId").in("this is no stream that can be used");
  if (!is_default(stream)) met_[stream] = {named, id};
  return id;
}

std::optional<DriverStreams::Id> DriverStreams::id_of(StreamHandle stream) {
  unsigned long long id = 0;
  const auto ask = driver_.api().cuStreamGetId;
  if (ask == nullptr || ask(stream_of(stream), &id) != CUDA_SUCCESS) return std::nullopt;
  return Id{id};
}

bool DriverStreams::is_default_current() const {
  CUcontext current = nullptr;
  return legacy_.handle == nullptr || driver_.api().cuCtxGetCurrent(&current) != CUDA_SUCCESS ||
         current == nullptr || current == legacy_.handle;
}

void DriverStreams::forget(StreamHandle stream, Id id) {
  const auto met = met_.find(stream_of(stream));
  if (met != met_.end() && met->second.id == id) met_.erase(met);
}

// Work ends with its context, which only a call in that context tells. A default stream may belong to a new
// context by now.
Result<DriverStreams::Mark> DriverStreams::mark(StreamHandle handle) {
  const CUstream stream = stream_of(handle);
  CUresult result = CUDA_SUCCESS;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    cuda::ContextName context;
    Spot* spot = nullptr;
    result = find_context(stream, context);
    if (result != CUDA_SUCCESS) return told(driver_, result, "cuStreamGetCtx");
    if (context.handle == nullptr) return kNoWork;
    result = record(stream, context, spot);
    if (result == CUDA_SUCCESS) return Mark{reinterpret_cast<std::uint64_t>(spot)};
    if (!cuda::is_context_gone(result)) break;
    give_up(context);
    if (!is_default(stream)) break;
  }
  if (has_ended(result)) return kNoWork;
  return told(driver_, result, "cuEventRecord");
}

// Without ids of streams, a known handle says nothing of the context.
Result<DriverStreams::Mark> DriverStreams::mark_met(StreamHandle handle) {
  const CUstream stream = stream_of(handle);
  const auto met = met_.find(stream);
  if (met == met_.end() || met->second.id == Id{}) return mark(handle);
  const auto ready = free_.find(met->second.context);
  if (ready == free_.end() || ready->second.empty()) return mark(handle);
  Spot* const spot = ready->second.back();
  if (record_in(*spot, stream) != CUDA_SUCCESS) return mark(handle);
  ready->second.pop_back();
  return Mark{reinterpret_cast<std::uint64_t>(spot)};
}

bool DriverStreams::renew(Mark mark, StreamHandle stream) {
  return mark != kNoWork && record_in(spot_of(mark), stream_of(stream)) == CUDA_SUCCESS;
}

// An event that a capture has taken is CUDA_ERROR_INVALID_VALUE once that capture has ended.
DriverStreams::Progress DriverStreams::ask(Mark mark) {
  if (mark == kNoWork) return Progress::kReached;
  const cuda::BesideCaptures beside(driver_);
  const CUresult asked = ask_event(spot_of(mark), driver_.api().cuEventQuery);
  if (asked == CUDA_SUCCESS) return Progress::kReached;
  const bool lost = asked == CUDA_ERROR_CAPTURED_EVENT || asked == CUDA_ERROR_INVALID_VALUE;
  return lost ? Progress::kLost : Progress::kPending;
}

// Whether the event is there is asked first: a call that names one of a destroyed context may do anything.
Result<void> DriverStreams::order(StreamHandle handle, Mark mark) {
  const Progress progress = ask(mark);
  if (progress == Progress::kReached) return {};
  if (progress == Progress::kLost) {
    return Error{Code::kFailedPrecondition, "cuEventQuery: a capture has taken the mark"};
  }
  const cuda::BesideCaptures beside(driver_);
  const CUstream stream = stream_of(handle);
  cuda::ContextName context;
  CUresult result = find_context(stream, context);
  if (result == CUDA_SUCCESS && context.handle == nullptr) {
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
  if (result == CUDA_SUCCESS || (is_over(result) && ask(mark) == Progress::kReached)) return {};
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
  cuda::ContextName of_default;
  (void)find_context_of_default(nullptr, of_default);  // blocks in use may be its, though it was never marked
  Result<void> done;
  for (const cuda::ContextName& context : contexts_) {
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

// The event is of its context alone, and goes with it.
CUresult DriverStreams::ask_event(const Spot& spot, CUresult (*call)(CUevent)) const {
  const cuda::EnteredContext entered(driver_, spot.context);
  const CUresult result = entered.result() == CUDA_SUCCESS ? call(spot.event.get()) : reason(entered);
  return is_over(result) ? CUDA_SUCCESS : result;
}

CUresult DriverStreams::find_context(CUstream stream, cuda::ContextName& context) {
  if (is_default(stream)) return find_context_of_default(stream, context);
  const auto met = met_.find(stream);
  if (met != met_.end()) {
    context = met->second.context;
    return CUDA_SUCCESS;
  }
  CUcontext asked = nullptr;
  const CUresult result = ask_context(stream, asked);
  return result == CUDA_SUCCESS ? name(asked, context) : result;
}

CUresult DriverStreams::find_context_of_default(CUstream stream, cuda::ContextName& context, Id* id) {
  context = is_legacy(stream) ? legacy_ : cuda::ContextName{};
  if (context.handle != nullptr) return CUDA_SUCCESS;
  CUcontext found = nullptr;
  CUresult result = find_current(found);
  if (result == CUDA_SUCCESS && found == nullptr) result = find_primary(found);
  if (result == CUDA_SUCCESS && found == nullptr) {
    const auto usable =
        std::ranges::find_if(contexts_, [this](const cuda::ContextName& one) { return can_enter(one); });
    if (usable != contexts_.end()) found = usable->handle;
  }
  if (result == CUDA_SUCCESS && found != nullptr) result = name(found, context, stream, id);
  if (result == CUDA_SUCCESS && is_legacy(stream)) legacy_ = context;
  return result;
}

// The driver answers only a thread with a context that can be used, whichever it is.
CUresult DriverStreams::ask_context(CUstream stream, CUcontext& context) {
  CUresult result = driver_.api().cuStreamGetCtx(stream, &context);
  if (has_ended(result)) {
    std::vector<cuda::ContextName> usable = contexts_;
    CUcontext primary = nullptr;
    cuda::ContextName named;
    if (find_primary(primary) == CUDA_SUCCESS && primary != nullptr && name(primary, named) == CUDA_SUCCESS) {
      usable.push_back(named);
    }
    for (const cuda::ContextName& other : usable) {
      const cuda::EnteredContext entered(driver_, other);
      if (entered.result() != CUDA_SUCCESS) continue;
      result = driver_.api().cuStreamGetCtx(stream, &context);
      if (!has_ended(result)) break;
    }
  }
  return result;
}

CUresult DriverStreams::name(CUcontext context, cuda::ContextName& named, CUstream stream, Id* id) {
  {
    const cuda::EnteredContext entered(driver_, context);
    if (entered.result() != CUDA_SUCCESS) return entered.result();
    named.handle = context;
    (void)entered.ask_id(named.id);  // of a broken context there is none
    if (id != nullptr && driver_.api().cuStreamGetId != nullptr) {
      unsigned long long told = 0;
      const CUresult asked = driver_.api().cuStreamGetId(stream, &told);
      if (asked != CUDA_SUCCESS) return asked;
      *id = Id{told};
    }
  }
  if (std::ranges::find(contexts_, named) != contexts_.end()) return CUDA_SUCCESS;
  std::erase_if(contexts_,
                [this](const auto& known) { return !can_enter(known); });  // programs make new ones
  contexts_.push_back(named);
  return CUDA_SUCCESS;
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

void DriverStreams::give_up(const cuda::ContextName& context) {
  if (auto old = free_.extract(context); !old.empty()) {
    for (Spot* spot : old.mapped()) spot->event.abandon();
    blank_.insert(blank_.end(), old.mapped().begin(), old.mapped().end());
  }
  if (context == legacy_) legacy_ = {};
  std::erase(contexts_, context);
}

// Use of the legacy default stream while another stream is captured would spoil that capture. Other streams
// are asked after the record only: in a capture that takes the event it is no node.
CUresult DriverStreams::record(CUstream stream, const cuda::ContextName& context, Spot*& spot) {
  const cuda::EnteredContext entered(driver_, context);
  if (entered.result() != CUDA_SUCCESS) return reason(entered);
  const CUresult captured = is_default(stream) ? check_not_captured(stream) : CUDA_SUCCESS;
  if (captured != CUDA_SUCCESS) return captured;
  std::vector<Spot*>& ready = free_[context];
  while (!ready.empty()) {
    spot = ready.back();
    const CUresult recorded = record_in(*spot, stream);
    if (recorded != CUDA_SUCCESS && !cuda::is_gone(recorded)) return recorded;
    ready.pop_back();
    if (recorded == CUDA_SUCCESS) return recorded;
    spot->event.abandon();  // before CUDA 12.0: belongs to an earlier context at this address
    blank_.push_back(spot);
  }
  Spot& fresh = new_spot(context);
  const cuda::BesideCaptures beside(driver_);
  CUresult result = cuda::Event::create(driver_, fresh.event);
  if (result == CUDA_SUCCESS) result = record_in(fresh, stream);
  if (cuda::is_of_capture(result) && fresh.event.get() != nullptr) {
    ready.push_back(&fresh);  // the capture may know the event
  } else if (result != CUDA_SUCCESS) {
    fresh.event = cuda::Event();
    blank_.push_back(&fresh);
  }
  spot = &fresh;
  return result;
}

// Another thread may capture the stream meanwhile. If no capture goes on after the record, a capture that
// took the event has ended. ask() tells that later. A query does no harm to a capture that has ended.
CUresult DriverStreams::record_in(const Spot& spot, CUstream stream) const {
  const CUresult recorded = driver_.api().cuEventRecord(spot.event.get(), stream);
  return recorded == CUDA_SUCCESS ? check_not_captured(stream) : recorded;
}

DriverStreams::Spot& DriverStreams::new_spot(const cuda::ContextName& context) {
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
