#include "daemon/host/awaited_link.h"

#include "daemon/host/process.h"

namespace gpumem::host {

Result<void> AwaitedLink::watch() {
  if (client_.pid == 0 || client_.started == 0) {
    return Error{Code::kFailedPrecondition, "its process is of another PID namespace"};
  }
  auto process = open_process(client_.pid, client_.started);
  if (!process) return process.error();
  return process_.watch(*process);
}

void AwaitedLink::await_end(std::function<void()> ended) {
  if (!process_.is_watching()) return;
  process_.await_end([self = shared_from_this(), ended = std::move(ended)] { ended(); });
}

}  // namespace gpumem::host
