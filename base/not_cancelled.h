#pragma once
#include <pthread.h>

namespace gpumem {

/// While it is there, its thread is not cancelled (pthread_cancel), however long it waits: the unwinding
/// would end the process at the first function that lets nothing out. The cancellation comes afterwards.
class NotCancelled {
 public:
  NotCancelled() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NotCancelled() { ::pthread_setcancelstate(before_, nullptr); }
  NotCancelled(const NotCancelled&) = delete;
  NotCancelled& operator=(const NotCancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace gpumem
