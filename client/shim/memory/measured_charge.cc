#include "client/shim/memory/measured_charge.h"

namespace gpumem::shim {

CUresult MeasuredCharge::reserve(const char* call, Bytes used, Bytes more) {
  Bytes missing;
  {
    const MutexLock lock(mutex_);
    const auto all = (used + reserved_).plus(more);
    if (!all) return CUDA_ERROR_OUT_OF_MEMORY;
    missing = all->minus(charged_ + asked_);
    reserved_ += more;
    asked_ += missing;
  }
  const CUresult charged = missing.is_zero() ? CUDA_SUCCESS : memory_.charge_outside(call, missing);
  const MutexLock lock(mutex_);
  asked_ -= missing;
  if (charged == CUDA_SUCCESS)
    charged_ += missing;
  else
    reserved_ -= more;
  return charged;
}

void MeasuredCharge::unreserve(Bytes reserved) {
  const MutexLock lock(mutex_);
  reserved_ -= reserved;
}

void MeasuredCharge::change_to(Bytes kept) {
  Bytes less;
  Bytes more;
  {
    const MutexLock lock(mutex_);
    const Bytes wanted = (kept + reserved_).minus(asked_);
    less = charged_.minus(wanted);
    more = wanted.minus(charged_);
    charged_ -= less;
  }
  if (!less.is_zero()) memory_.discharge_outside(less);
  if (more.is_zero()) return;
  const Bytes charged = memory_.charge_outside_up_to(more);
  const MutexLock lock(mutex_);
  charged_ += charged;
}

}  // namespace gpumem::shim
