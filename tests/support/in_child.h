#pragma once
#include <sys/wait.h>
#include <unistd.h>

namespace gpumem::test {

/// Whether `body` answers true in a forked child, which ends without destructors, as one does that calls
/// exec. A child that hangs is ended by its alarm.
template <class Body>
bool in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(120);
    ::_exit(body() ? 0 : 1);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace gpumem::test
