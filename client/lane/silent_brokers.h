#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "client/lane/lane.h"
#include "client/process/fork_guard.h"
#include "gpumem/options.h"

namespace gpumem::client {

/// A lane, and what its broker has answered to the Hello.
struct GreetedLane {
  std::unique_ptr<Lane> lane;
  Greeting greeting;
};

/// Connects to brokers, and knows those that have not answered yet. A silent broker is not sent its greeting
/// again. Its late answer makes the next lane for a caller that connects with the same options and job. Until
/// then a session may be open there that nothing uses.
/// Threads  any. Callers that connect at the same time do not wait for each other.
class SilentBrokers : public OfProcess {
 public:
  using Clock = Lane::Clock;

  /// The process's own. A forked child has none of its parent's.
  static SilentBrokers& of_process();

  /// `job`  that the session joins, whatever the options say; 0: none.   Errors  as Session::connect.
  /// Blocks  until `deadline` at most. Not at all, while a broker that was waited for before is silent.
  Result<GreetedLane> connect(const SessionOptions& options, std::uint64_t job, Clock::time_point deadline);
  /// Closes the lanes to silent brokers: none of their late answers opens a session.
  void forget();

 private:
  struct Silent {
    std::unique_ptr<Lane> lane;  ///< with a Hello without an answer; null: there was no room to connect
    SessionOptions options;
    std::uint64_t job = 0;
  };
  void remember(const std::filesystem::path& socket, Silent silent);
  /// What a broker has answered since. Nothing: none is waited for. Errors  kUnavailable: no answer yet.
  Result<std::optional<GreetedLane>> take_late(const std::filesystem::path& socket,
                                               const SessionOptions& options, std::uint64_t job);
  Result<std::unique_ptr<Lane>> reach(const std::filesystem::path& socket, const SessionOptions& options,
                                      Clock::time_point deadline);

  Mutex mutex_;
  std::map<std::filesystem::path, Silent> silent_ GPUMEM_GUARDED_BY(mutex_);  ///< by their sockets
};

}  // namespace gpumem::client
