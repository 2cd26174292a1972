#pragma once
#include "gpumem/result.h"
#include "shm/pages.h"

namespace gpumem::core {

/// Whoever opened a session by Executor::open_session() and speaks for its client. Called on the core's
/// thread; does not block.
class SessionHolder {
 public:
  virtual ~SessionHolder() = default;
  /// The session is asked for more memory than before: `figures` say how much of which device, and until
  /// when.
  virtual void pressed(const BrokerFigures& figures) = 0;
  /// The session is over, and not because its holder ended it.
  virtual void closed(const Error& why) = 0;
};

}  // namespace gpumem::core
