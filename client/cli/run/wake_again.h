#pragma once
#include <sys/types.h>

namespace gpumem::cli {

/// While it lives, this process is continued (SIGCONT) when the process `pid`, a child, goes on or ends: a
/// process that stops with its command would hear of neither, if the command was continued a moment before
/// this one stopped, or by itself. It is another process that sees to it, where there is /proc.
class WakeAgain {
 public:
  explicit WakeAgain(pid_t pid);
  ~WakeAgain();
  WakeAgain(const WakeAgain&) = delete;
  WakeAgain& operator=(const WakeAgain&) = delete;

  /// The process that continues this one; -1 if there is none.
  pid_t watcher() const { return watcher_; }

 private:
  pid_t watcher_ = -1;
};

}  // namespace gpumem::cli
