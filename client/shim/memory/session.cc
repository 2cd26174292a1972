#include "client/shim/memory/session.h"

#include "client/connection.h"
#include "client/shim/memory/messages.h"
#include "client/shim/real.h"

namespace gpumem::shim {

Result<void> Session::open(const std::string& label) {
  auto connected = client::Connection::open({.label = label}, real_folder());
  if (!connected) return connected.error();
  const MutexLock lock(mutex_);
  label_ = label;
  connection_ = std::move(*connected);
  return {};
}

Result<std::shared_ptr<client::Connection>> Session::usable() {
  const MutexLock lock(mutex_);
  if (connection_ == nullptr || !connection_->lane().is_closed()) return connection_;
  auto connected = client::Connection::open({.label = label_}, real_folder());
  if (!connected) return connected.error();
  say("the session with the broker was lost; memory that is mapped stays usable, and what is allocated from "
      "now on is borrowed in a new session");
  connection_ = std::move(*connected);
  return connection_;
}

}  // namespace gpumem::shim
