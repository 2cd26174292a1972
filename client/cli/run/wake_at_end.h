#pragma once
#include <sys/types.h>

namespace gpumem::cli {

/// While it lives, this process is continued (SIGCONT) when the process `pid`, a child, ends: a process that
/// stops with its command would not hear of the end. It is another process that sees to it. A kernel without
/// pidfds (before Linux 5.3) has no such thing.
class WakeAtEnd {
 public:
  explicit WakeAtEnd(pid_t pid);
  ~WakeAtEnd();
  WakeAtEnd(const WakeAtEnd&) = delete;
  WakeAtEnd& operator=(const WakeAtEnd&) = delete;

 private:
  pid_t watcher_ = -1;
};

}  // namespace gpumem::cli
