#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/fork_guard.h"
#include "gpumem/v1/lane.pb.h"

namespace gpumem::client {

/// The broker's answer to a Hello.
struct Greeting {
  v1::Welcome welcome;  ///< session and token are set; at most kMaxDevices devices
  OwnFd broker_page;
  OwnFd client_page;
  OwnFd doorbell;
};

/// One message of a grant: descriptor i is lease i's.
struct Offer {
  std::vector<std::uint64_t> leases;
  std::vector<OwnFd> descriptors;
};

/// The client's end of a session's lane. Its end is the session's end.
/// There is no reader thread. A thread that waits for an offer reads, and stores the offers of other grants.
/// Threads  any.
class Lane {
 public:
  using Clock = std::chrono::steady_clock;

  /// Errors  as connect_error.   Blocks  for `timeout` at most, as every call of the lane.
  static Result<std::unique_ptr<Lane>> connect(const std::filesystem::path& socket,
                                               std::chrono::milliseconds timeout);

  /// Introduces this process; once, before anything else.
  /// Errors  kUnavailable (the broker closed), kDeadlineExceeded (it does not answer), kFailedPrecondition
  ///         (it speaks another protocol), kInternal (it breaks the protocol), and what it refuses with.
  Result<Greeting> greet(const std::string& label);

  /// Introduces this process as a control connection, which only queries and administers, instead of greet().
  /// Returns the token.
  /// Errors  as greet().
  Result<std::string> greet_control();

  /// The next offer of `grant`. The broker has sent it before it answered the call that asked for it.
  /// Errors  kUnavailable, kDeadlineExceeded, kInternal, kResourceExhausted (no room for descriptors).
  Result<Offer> receive_offer(std::uint64_t grant);

  /// Reports that every extent of `grant` is mapped. Errors  kUnavailable, kDeadlineExceeded.
  Result<void> accept(std::uint64_t grant);

  /// Reports that this process has nothing more to give back now on the device with index `device`.
  /// Errors  kUnavailable, kDeadlineExceeded.
  Result<void> spent(std::size_t device);

  /// Reports that this process has unmapped everything. If the broker is gone, does nothing.
  void goodbye();

  /// Exists during one growth, from before the request. If a growth fails, its offers may still arrive. They
  /// are dropped when no growth is left that could need them, because a descriptor alone pins its memory.
  class Growth {
   public:
    explicit Growth(Lane& lane);
    ~Growth();
    Growth(const Growth&) = delete;
    Growth& operator=(const Growth&) = delete;
    void succeeded() { succeeded_ = true; }

   private:
    Lane& lane_;
    bool succeeded_ = false;
  };

 private:
  struct Received;

  Lane(OwnFd socket, std::filesystem::path path, std::chrono::milliseconds timeout)
      : socket_(std::move(socket)), path_(std::move(path)), timeout_(timeout) {}
  Result<void> wait(short event, Clock::time_point deadline) const;
  Result<void> send(const v1::ToBroker& message);
  Result<Received> introduce(v1::Hello hello);
  Result<Received> receive(Clock::time_point deadline);
  void drop_orphans() GPUMEM_REQUIRES(mutex_);

  OwnFd socket_;
  std::filesystem::path path_;
  std::chrono::milliseconds timeout_;
  Mutex mutex_;
  std::multimap<std::uint64_t, Offer> aside_ GPUMEM_GUARDED_BY(mutex_);  ///< by grant
  int growths_ GPUMEM_GUARDED_BY(mutex_) = 0;
};

}  // namespace gpumem::client
