#include "cuda/event.h"

namespace gpumem::cuda {

CUresult Event::create(const Driver& driver, Event& event) {
  Event made;
  const CUresult result = driver.api().cuEventCreate(&made.event_, CU_EVENT_DISABLE_TIMING);
  if (result != CUDA_SUCCESS) return result;
  made.driver_ = &driver;
  event = std::move(made);
  return CUDA_SUCCESS;
}

Event::~Event() {
  if (driver_ != nullptr) driver_->api().cuEventDestroy(event_);
}

EnteredContext::EnteredContext(const Driver& driver, CUcontext context) : driver_(driver) {
  CUcontext current = nullptr;
  result_ = driver_.api().cuCtxGetCurrent(&current);
  // An error is of the context that was current, which may have been destroyed.
  if (result_ != CUDA_SUCCESS || current != context) {
    result_ = driver_.api().cuCtxPushCurrent(context);
    pushed_ = result_ == CUDA_SUCCESS;
  }
  if (result_ != CUDA_SUCCESS) return;
  if (const CUresult there = check_current(driver_); is_context_gone(there)) result_ = there;
}

EnteredContext::EnteredContext(const Driver& driver, const ContextName& context)
    : EnteredContext(driver, context.handle) {
  if (result_ != CUDA_SUCCESS) return;
  unsigned long long id = 0;
  const CUresult asked = ask_id(id);
  if (is_context_gone(asked)) result_ = asked;
  if (asked == CUDA_SUCCESS && id != context.id) result_ = CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult EnteredContext::ask_id(unsigned long long& id) const {
  id = 0;
  return driver_.api().cuCtxGetId == nullptr ? CUDA_SUCCESS : driver_.api().cuCtxGetId(nullptr, &id);
}

EnteredContext::~EnteredContext() {
  CUcontext popped = nullptr;
  if (pushed_) driver_.api().cuCtxPopCurrent(&popped);
}

CUresult check_current(const Driver& driver) {
  int least = 0, greatest = 0;
  return driver.api().cuCtxGetStreamPriorityRange(&least, &greatest);
}

bool is_context_gone(CUresult result) {
  return result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
         result == CUDA_ERROR_INVALID_CONTEXT;
}

bool is_gone(CUresult result) { return is_context_gone(result) || result == CUDA_ERROR_INVALID_HANDLE; }

bool is_broken(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED: return true;
    default: return false;
  }
}

// 900 to 908: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED to CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, with
// CUDA_ERROR_CAPTURED_EVENT among them.
bool is_of_capture(CUresult result) {
  return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

}  // namespace gpumem::cuda
