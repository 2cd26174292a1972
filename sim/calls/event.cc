// Events: points in the order of a stream.
#include <cuda.h>
#include <cstdint>
#include <utility>

#include "calls.h"
#include "sim/calls/find_object.h"

namespace gpumem::sim {
namespace {

constexpr unsigned kShareable = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
constexpr unsigned kEventFlags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

/// Finds an event for `act`, which answers the call's result.
template <class Act>
CUresult with_event(CUevent event, Act act) {
  Call driver;
  if (!driver) return driver.error();
  Event* const found = driver->events.named(number(event));
  return found == nullptr ? CUDA_ERROR_INVALID_HANDLE : act(driver, *found);
}

CUresult record(CUevent event, CUstream stream, unsigned flags) {
  if ((flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  return with_event(event, [&](Call& driver, Event& found) {
    StreamRef queue;
    if (const CUresult result = driver->queue(stream, &queue); result != CUDA_SUCCESS) return result;
    if (options_of(*queue).context != found.context) return CUDA_ERROR_INVALID_HANDLE;
    const bool is_captured = driver->captures.find(*queue) != nullptr;
    if (flags == CU_EVENT_RECORD_EXTERNAL) {
      if (!is_captured) return CUDA_ERROR_INVALID_VALUE;
      driver->captures.add(*queue, RecordAction{number(event)});
    } else if (is_captured) {
      found.record(driver->captures.point(*queue));
    } else {
      found.record(driver->streams, queue);
    }
    return CUDA_SUCCESS;
  });
}

/// Success if the host may ask about the event.
CUresult check_query(Call& driver, const Event& event) {
  return event.captured() ? Captures::refuse(*event.captured()) : driver->captures.check_unsafe();
}

/// Puts a wait for the event into the capture that the stream is in.
CUresult wait_in_capture(Call& driver, const Stream& stream, CUevent handle, const Event& event,
                         unsigned flags) {
  if (flags == CU_EVENT_WAIT_EXTERNAL) {
    driver->captures.add(stream, WaitAction{number(handle)});
    return CUDA_SUCCESS;
  }
  return event.was_recorded() ? driver->captures.isolate(stream) : CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuEventCreate(CUevent* out, unsigned int flags) {
  return with_current([&](Call& driver, const Context& context) {
    const bool is_shared = (flags & CU_EVENT_INTERPROCESS) != 0;
    const bool is_possible = !is_shared || (flags & kShareable) == kShareable;
    if (out == nullptr || (flags & ~kEventFlags) != 0 || !is_possible) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<SharedEvent> page;
    if (is_shared) {
      auto made = SharedEvent::create(driver->table->folder());
      if (!made) return CUDA_ERROR_OPERATING_SYSTEM;
      page = std::move(*made);
    }
    *out = handle<CUevent>(driver->events.create(context.id, flags, std::move(page)));
    return CUDA_SUCCESS;
  });
}

/// What waits for the event's last record still does.
CUresult api::cuEventDestroy_v2(CUevent event) {
  return with_event(event, [event](Call& driver, const Event&) {
    driver->events.destroy(number(event));
    return CUDA_SUCCESS;
  });
}
CUresult api::cuEventDestroy(CUevent event) { return api::cuEventDestroy_v2(event); }

CUresult api::cuEventRecord(CUevent event, CUstream stream) { return record(event, stream, 0); }
CUresult api::cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  return record(event, stream, flags);
}

CUresult api::cuEventQuery(CUevent event) {
  return with_event(event, [](Call& driver, Event& found) {
    if (const CUresult result = check_query(driver, found); result != CUDA_SUCCESS) return result;
    return found.is_done() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult api::cuEventSynchronize(CUevent event) {
  return with_event(event, [](Call& driver, Event& found) {
    const std::uint64_t context = found.context;
    if (const CUresult result = check_query(driver, found); result != CUDA_SUCCESS) return result;
    driver.run_unlocked(found.waiter());
    driver->pools.synchronized();
    return driver->after_wait(context);
  });
}

CUresult api::cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  if ((flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  return with_event(event, [&](Call& driver, Event& found) {
    StreamRef queue;
    if (const CUresult result = driver->stream(stream, &queue); result != CUDA_SUCCESS) return result;
    if (found.captured() && flags == CU_EVENT_WAIT_DEFAULT)
      return driver->captures.wait(*queue, *found.captured());
    if (const CUresult result = driver->captures.check_use(*queue); result != CUDA_SUCCESS) return result;
    if (driver->captures.find(*queue) != nullptr) return wait_in_capture(driver, *queue, event, found, flags);
    if (flags != CU_EVENT_WAIT_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
    found.hold_back(driver->streams, queue);
    return CUDA_SUCCESS;
  });
}

CUresult api::cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  Call driver;
  if (!driver) return driver.error();
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Event* const first = driver->events.named(number(start));
  Event* const last = driver->events.named(number(end));
  for (const Event* const event : {first, last}) {
    if (event != nullptr && event->captured()) return Captures::refuse(*event->captured());
  }
  if (first == nullptr || last == nullptr || !first->has_time() || !last->has_time()) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!first->is_done() || !last->is_done()) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>((last->time() - first->time()).count()) / 1e6F;
  return CUDA_SUCCESS;
}
#if CUDA_VERSION >= 12080
CUresult api::cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return api::cuEventElapsedTime(milliseconds, start, end);
}
#endif

/// The handle is the name of the page that the processes share.
CUresult api::cuIpcGetEventHandle(CUipcEventHandle* out, CUevent event) {
  return with_event(event, [&](Call&, const Event& found) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (found.shared == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *out = {};
    found.shared->name().copy(out->reserved, sizeof out->reserved - 1);
    return CUDA_SUCCESS;
  });
}

CUresult api::cuIpcOpenEventHandle(CUevent* out, CUipcEventHandle ipc) {
  return with_current([&](Call& driver, const Context& context) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    ipc.reserved[sizeof ipc.reserved - 1] = '\0';
    auto page = SharedEvent::open(driver->table->folder(), ipc.reserved);
    if (!page) return CUDA_ERROR_INVALID_HANDLE;
    const std::uint64_t id = driver->events.create(context.id, kShareable, std::move(*page));
    *out = handle<CUevent>(id);
    return CUDA_SUCCESS;
  });
}

}  // namespace gpumem::sim
