#pragma once
#include <memory>
#include <utility>

#include "client/connection.h"

namespace gpumem::client {

/// Connects to a broker that may not answer. What it was sent once is not sent again: its answer, however
/// late, makes the connection. Threads  one at a time.
class ConnectionAttempt {
 public:
  explicit ConnectionAttempt(SessionOptions options) : options_(std::move(options)) {}

  /// The connection. Nothing follows a success.
  /// Errors  as Connection::open.
  /// Blocks  for the timeout at most, as long as the broker has been sent nothing. After that, not at all.
  Result<std::shared_ptr<Connection>> open();

 private:
  Result<std::shared_ptr<Connection>> begin();
  Result<std::shared_ptr<Connection>> finish(Result<Greeting> greeting);

  const SessionOptions options_;
  std::unique_ptr<Lane> lane_;  ///< of a broker that has not answered yet
  bool is_full_ = false;        ///< there may be no room for another connection: it is not waited for again
};

}  // namespace gpumem::client
