#pragma once
#include <netinet/in.h>

#include "base/system/unique_fd.h"

namespace gpumem::test {

/// Sends descriptors of TCP connections over loopback that have unsent bytes and whose other end does not
/// read: whoever closes such a one waits for a minute.
class LingeringSockets {
 public:
  LingeringSockets();

  /// Sends one by the Unix socket, which then has the only descriptor of it; false if it is refused.
  bool send_one(int socket) const;

 private:
  UniqueFd listener_;  // which accepts nobody
  sockaddr_in address_{};
};

}  // namespace gpumem::test
