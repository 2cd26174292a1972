#pragma once
#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "client/fork_guard.h"
#include "client/lane.h"
#include "gpumem/pressure.h"
#include "shm/pages.h"

namespace gpumem::client {

/// A deadline of the broker's page: what CLOCK_MONOTONIC counts is what the steady clock counts.
inline std::chrono::steady_clock::time_point deadline_of(std::uint64_t nanoseconds) {
  return std::chrono::steady_clock::time_point(
      std::chrono::nanoseconds(static_cast<std::int64_t>(nanoseconds)));
}

/// Something that holds memory which it can do without.
class Trimmable {
 public:
  virtual ~Trimmable() = default;
  /// Of the device, in the shared pages.
  virtual std::size_t device_index() const = 0;
  virtual Bytes surplus() const = 0;
  /// Gives back at least `wanted`, as far as the surplus goes; answers how much.
  virtual Bytes trim(Bytes wanted) = 0;
};

/// Answers the broker when it asks the session for memory, in a thread of its own: trims, then calls the
/// program's handler, then says that there is no more. It sleeps on the bell, and lasts until end().
/// Fork     the thread does not exist in a child, where this is neither used nor destroyed.
/// Threads  any. No lock is held while something is trimmed or the handler runs.
class PressureListener {
 public:
  /// `page`, `lane`, `welcome`  outlive this.
  PressureListener(const BrokerPage& page, Lane& lane, const v1::Welcome& welcome, OwnFd bell);
  ~PressureListener() { end(); }
  PressureListener(const PressureListener&) = delete;
  PressureListener& operator=(const PressureListener&) = delete;

  /// Starts the thread, once. Errors  kResourceExhausted.
  Result<void> start();
  /// Waits for the thread, unless it is the handler that ends the session: then the thread ends when that
  /// returns. Nothing but the destruction of this follows.
  void end();
  /// As Session::on_pressure.
  void set_handler(PressureHandler handler);
  /// From here on, until it is removed, `slice` may be trimmed. remove() waits for a trim under way.
  void add(Trimmable& slice);
  void remove(Trimmable& slice);

 private:
  /// What the broker asks for of one device.
  struct Request {
    Bytes bytes;
    std::uint64_t deadline = 0;
    /// Whether the answer to `other` is none to this: more, or asked another time.
    bool goes_beyond(const Request& other) const {
      return !bytes.is_zero() && (bytes > other.bytes || deadline != other.deadline);
    }
  };

  /// The thread's own: on its stack, since a handler may end the session, and this with it.
  struct Own {
    bool gone = false;                         ///< this went during a call of the handler
    bool complained = false;                   ///< of a handler that throws
    std::array<Request, kMaxDevices> spent{};  ///< what was answered with "no more"
  };

  void run();
  bool await_bell() const;
  Request request(std::size_t device) const;
  /// False: the handler has ended the session, and this with it.
  bool answer(std::size_t device);
  void trim(std::size_t device);
  std::vector<Trimmable*> largest_first(std::size_t device);
  bool call_handler(std::size_t device);
  static void call(const PressureHandler& handler, const Pressure& pressure, Own& own);

  const BrokerPage& page_;
  Lane& lane_;
  const v1::Welcome& welcome_;
  const OwnFd bell_;

  Mutex mutex_;
  Condition changed_;  ///< of trimming_ and handling_
  std::vector<Trimmable*> slices_ GPUMEM_GUARDED_BY(mutex_);
  Trimmable* trimming_ GPUMEM_GUARDED_BY(mutex_) = nullptr;
  std::shared_ptr<const PressureHandler> handler_ GPUMEM_GUARDED_BY(mutex_);
  bool handling_ GPUMEM_GUARDED_BY(mutex_) = false;
  std::uint64_t calls_ GPUMEM_GUARDED_BY(mutex_) = 0;  ///< of handlers, so far
  std::thread thread_ GPUMEM_GUARDED_BY(mutex_);
  OwnFd stop_;          ///< set before the thread starts
  Own* own_ = nullptr;  ///< set and used by the thread
};

}  // namespace gpumem::client
