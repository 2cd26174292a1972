#pragma once
#include <sys/types.h>

namespace gpumem::test {

/// Makes the calling thread another user's, as long as it lives: sockets that it connects are that user's.
/// Needs root.
class AsUser {
 public:
  AsUser(uid_t uid, gid_t gid);
  ~AsUser();
  AsUser(const AsUser&) = delete;
  AsUser& operator=(const AsUser&) = delete;
};

}  // namespace gpumem::test
