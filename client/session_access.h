#pragma once
#include "client/connection.h"
#include "gpumem/session.h"

namespace gpumem {

/// Gives the C API access to the connection of a Session that was not moved from.
struct SessionAccess {
  static client::Connection& connection(const Session& session) { return *session.connection_; }
};

}  // namespace gpumem
