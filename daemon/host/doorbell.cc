#include "daemon/host/doorbell.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace gpumem::host {

Result<Doorbell> Doorbell::create() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno_error(errno, "cannot make a doorbell");
  Doorbell doorbell;
  doorbell.read_.reset(ends[0]);
  doorbell.write_.reset(ends[1]);
  ::fcntl(ends[1], F_SETPIPE_SZ, 4096);  // as much as it ever needs; a failure costs a little memory
  return doorbell;
}

void Doorbell::ring() const {
  const std::uint64_t one = 1;
  // Full, or the client is gone: neither is the broker's matter.
  static_cast<void>(::write(write_.get(), &one, sizeof one) < 0);
}

}  // namespace gpumem::host
