#pragma once
#include <memory>
#include <string>

#include "base/mutex.h"
#include "gpumem/result.h"

namespace gpumem::client {
class Connection;
}  // namespace gpumem::client

namespace gpumem::shim {

/// The process's session with the broker. It goes on when the broker is restarted; if the next broker does
/// not resume it, what was borrowed stays mapped, and another session takes its place for what is borrowed
/// then. Threads  any.   Blocks  while a session is opened.
class Session {
 public:
  /// Opens the first one; `label` is that of all.   Errors  as Session::connect of the library.
  Result<void> open(const std::string& label);
  /// The session, another one if that is lost. Null: none was opened.
  /// Errors  as open(): the lost one stays.
  Result<std::shared_ptr<client::Connection>> usable();

 private:
  Mutex mutex_;
  std::string label_ GPUMEM_GUARDED_BY(mutex_);
  std::shared_ptr<client::Connection> connection_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::shim
