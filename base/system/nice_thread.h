#pragma once
#include <sys/resource.h>
#include <unistd.h>

namespace gpumem {

/// Has the calling thread run after others: what it does may take long, and decides nothing.
inline void make_thread_nice() {
  constexpr int kNice = 10;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);  // on Linux: of this thread
}

}  // namespace gpumem
