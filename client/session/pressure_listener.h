#pragma once
#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "client/lane/lane.h"
#include "client/process/background_task.h"
#include "client/process/fork_guard.h"
#include "gpumem/pressure.h"
#include "shm/pages.h"

namespace gpumem::client {

/// Converts a deadline of the broker's page. CLOCK_MONOTONIC and the steady clock count the same.
inline std::chrono::steady_clock::time_point deadline_of(std::uint64_t nanoseconds) {
  return std::chrono::steady_clock::time_point(
      std::chrono::nanoseconds(static_cast<std::int64_t>(nanoseconds)));
}

/// An object that holds memory and can give some of it back.
class Trimmable {
 public:
  virtual ~Trimmable() = default;
  /// The device's index in the shared pages.
  virtual std::size_t device_index() const = 0;
  virtual Bytes surplus() const = 0;
  /// Gives back at least `wanted`, at most the surplus. Returns how much.
  virtual Bytes trim(Bytes wanted) = 0;
};

/// Answers the broker's requests for memory in the library's background thread, woken by the doorbell. It
/// trims, then calls the program's handler, then reports that there is no more.
/// Fork     as BackgroundTask.
/// Threads  any. No lock is held while something is trimmed or the handler runs.
class PressureListener {
 public:
  /// `page`, `lane`, `welcome`  outlive this.
  PressureListener(const BrokerPage& page, Lane& lane, const Welcome& welcome, OwnFd doorbell);
  ~PressureListener() { end(); }
  PressureListener(const PressureListener&) = delete;
  PressureListener& operator=(const PressureListener&) = delete;

  /// From now on requests are answered. Errors  kResourceExhausted.
  Result<void> start() { return task_.begin(); }
  /// Waits for an answer in progress, unless the handler itself ends the session. Then the answer ends when
  /// the handler returns. Only destruction may follow.
  void end();
  /// The broker was restarted: `doorbell` is the new one's.
  void replace_doorbell(OwnFd doorbell) {
    static_cast<void>(
        replace_descriptor(doorbell_, std::move(doorbell)));  // if not, the next look at it sees it
  }
  /// As Session::on_pressure.
  void set_handler(PressureHandler handler);
  /// `slice` may be trimmed until it is removed. remove() waits for a trim in progress.
  void add(Trimmable& slice);
  void remove(Trimmable& slice);

 private:
  /// What the broker requests on one device.
  struct Request {
    Bytes bytes;
    std::uint64_t deadline = 0;
    /// Whether this is a new request, not answered with `other`: for more, or with another deadline.
    bool goes_beyond(const Request& other) const {
      return !bytes.is_zero() && (bytes > other.bytes || deadline != other.deadline);
    }
  };

  /// The state of the answers. It outlives this object if a handler ends the session, and this with it.
  struct Own {
    bool gone = false;                         ///< this object was destroyed during a call of the handler
    bool reported = false;                     ///< a handler has thrown, and that was reported
    std::array<Request, kMaxDevices> spent{};  ///< the requests that were answered with `Spent`
  };

  /// As BackgroundTask's work.
  bool answer_doorbell();
  bool is_rung() const;
  Request request(std::size_t device) const;
  /// False if the handler has ended the session, and this object with it.
  bool answer(std::size_t device);
  void trim(std::size_t device);
  std::vector<Trimmable*> largest_first(std::size_t device);
  bool call_handler(std::size_t device);
  static void call(const PressureHandler& handler, const Pressure& pressure, Own& own);

  const BrokerPage& page_;
  Lane& lane_;
  const Welcome& welcome_;
  const OwnFd doorbell_;

  Mutex mutex_;
  Condition changed_;  ///< of trimming_ and handling_
  std::vector<Trimmable*> slices_ GPUMEM_GUARDED_BY(mutex_);
  Trimmable* trimming_ GPUMEM_GUARDED_BY(mutex_) = nullptr;
  std::shared_ptr<const PressureHandler> handler_ GPUMEM_GUARDED_BY(mutex_);
  bool handling_ GPUMEM_GUARDED_BY(mutex_) = false;
  std::uint64_t calls_ GPUMEM_GUARDED_BY(mutex_) = 0;  ///< of handlers, so far
  const std::shared_ptr<Own> own_ = std::make_shared<Own>();
  BackgroundTask task_{{.readable = &doorbell_}, [this] { return answer_doorbell(); }};
};

}  // namespace gpumem::client
