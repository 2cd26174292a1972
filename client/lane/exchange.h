#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "client/lane/lane_resumption.h"
#include "client/lane/lane_socket.h"
#include "client/process/signal_watch.h"

namespace gpumem::client {

/// Longer than any real wait, and short enough to be added to a point in time.
inline constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 365);

/// The requests in flight on one lane, and their answers, in any order. There is no reader thread: one of the
/// threads that wait for an answer reads, and hands the others theirs.
/// A broker that does not answer a call in time is silent until something comes from it; calls that begin
/// meanwhile fail at once. An answer without a waiting call is dropped: the leases of a late grant are
/// returned, a late import or reservation is released.
/// A broker that has ended may be followed by another, which resumes the session: calls wait for it until
/// their deadlines, and are made again there.
/// A call that may wait for others fails as kCancelled if the program takes a signal to end (SignalWatch).
/// Threads  any. `mutex_` is held for system calls that do not block.
class Exchange {
 public:
  using Clock = LaneSocket::Clock;

  /// `peer`     the broker in an error's words.
  /// `timeout`  of a call; and how long a broker may be silent while a growth waits.
  Exchange(LaneSocket socket, std::string peer, std::chrono::milliseconds timeout);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// One request. It lives on the stack of the thread that waits for its answer.
  class Call {
   public:
    enum class Of { kRequest, kGrowth };  ///< a growth, or whatever else the broker may let wait
    struct Deadlines {
      Clock::time_point answer;  ///< of sending and of the answer; of a growth, until the broker lets it wait
      Clock::time_point broker;  ///< a broker that is not there is not waited for any more
      bool is_wait = false;      ///< the broker may let it wait: a signal ends it
    };
    Call(Exchange& exchange, Deadlines deadlines, Of of = Of::kRequest);
    Call(Exchange& exchange, Clock::time_point deadline) : Call(exchange, {deadline, deadline}) {}
    /// A growth without an answer is withdrawn. What comes later counts as come for nobody.
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    std::uint64_t request() const { return request_; }
    /// Sends `frame`, which has this request's number; once.
    /// Errors  kUnavailable: the broker is gone, or does not answer.
    Result<void> send(const lane::Outgoing& frame);
    /// Waits for the answer, or for its next frame.
    /// Errors  as send(); kInternal: what came is no frame.
    Result<void> await(LanePacket& answer);
    /// There are more frames to come: until the deadline, or within the timeout if the broker let it wait.
    void go_on();
    /// The answer that did not come is waited for once more, until `deadline`.
    void retry(Clock::time_point deadline);
    /// Withdraws the growth: its answer comes within the timeout. Threads  any.
    void call_off();

   private:
    friend Exchange;
    bool is_interrupted() const { return signals_ && signals_->seen() != 0; }

    Exchange& exchange_;
    const std::uint64_t request_;
    const Of of_;
    std::optional<SignalWatch> signals_;  // of a call that may wait for longer than an answer takes
    // Guarded by the exchange's mutex.
    lane::Outgoing frame_;
    Clock::time_point deadline_;
    Clock::time_point broker_deadline_;
    Clock::time_point begun_;  // when it was sent first
    bool sent_ = false;        // all of `frame_`, on the connection of now
    bool partly_ = false;      // a frame of its answer has come, and more are missing
    bool called_off_ = false;
    Clock::time_point since_;  // when it was sent, or last known to be answered
    bool queued_ = false;      // a growth that the broker lets wait
    bool linked_ = false;      // in the list of calls: not answered in full
    bool asleep_ = false;      // its thread waits for another one to read
    Clock::time_point grace_;  // see Exchange::check_patience
    bool arrived_ = false;     // `packet_` is there
    LanePacket packet_;
    std::optional<Error> failed_;  // what came for it is broken
    Condition changed_;
    Call* previous_ = nullptr;
    Call* next_ = nullptr;
  };

  /// Sends `frame`, which has no answer and is for this broker alone. Errors  kUnavailable.   Blocks  until
  /// `deadline`, if the lane is full.
  Result<void> tell(const lane::Outgoing& frame, Clock::time_point deadline);
  /// Sends `frame`, whose answer is of no interest, at once or when the lane has room. A Charge takes the
  /// place of one that waits for that.
  void tell_later(const lane::Outgoing& frame);
  /// Sends what is still to be sent, and `last`, as far as there is room. No call is in flight, and none
  /// follows.
  void end(const lane::Outgoing& last);

  /// How the session goes on when its broker has ended. Called by one thread at a time, but for
  /// has_reached_one.
  struct Resumption {
    /// Tries until a deadline; nothing: not yet. Errors  the session is lost; why.
    std::function<Result<std::optional<LaneSocket>>(const SessionHoldings::Frames&, Clock::time_point)>
        attempt;
    /// Why the last attempt could not ask a broker that may be there; empty: none is there.
    std::function<std::string()> obstacle;
    /// Whether a broker is there, which has not answered yet. Threads  any.
    std::function<bool()> has_reached_one;
    /// Says the last frame to a broker that has not answered an attempt yet.
    std::function<void(std::string_view)> leave;
  };
  /// Before any further call.
  void set_resumption(Resumption resumption);
  /// Whether the session has gone on with another broker.
  bool was_resumed();
  /// If the connection has ended, waits until `deadline` for it to be open again. False: the session is lost,
  /// or cannot be resumed.
  bool mend(Clock::time_point deadline);

  /// Ends the session: the program has closed a descriptor that it needs. Calls fail from now on, and say so.
  void abandon();

  /// Whether the broker has closed the connection, and none will resume the session. Reads what is there;
  /// does not block.
  bool is_closed();

  std::uint64_t next_request() { return last_request_.fetch_add(1, std::memory_order_relaxed) + 1; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  /// When a call that begins now has taken its `timeout`.
  static Clock::time_point deadline_in(std::chrono::milliseconds timeout);

 private:
  /// After what is queued. kGone: of this connection. kFull: there was no room until `room`.
  LaneSocket::Sent try_to_send(std::string_view bytes, Clock::time_point room) GPUMEM_REQUIRES(mutex_);
  /// On whichever connection is open. Errors  kUnavailable.
  Result<void> send(Call& call) GPUMEM_REQUIRES(mutex_);
  void renew(Call& call) GPUMEM_REQUIRES(mutex_);
  bool may_resume() const GPUMEM_REQUIRES(mutex_) { return resumption_.attempt != nullptr && !lost_; }
  /// Success: the connection is open. Errors  kUnavailable, and why the session is lost; `call` is
  /// interrupted. `deadline`  may come nearer meanwhile.
  Result<void> wait_for_broker(const Clock::time_point& deadline, const Call* call = nullptr)
      GPUMEM_REQUIRES(mutex_);
  bool wait_until_open(const Clock::time_point& deadline, const Call* call = nullptr) GPUMEM_REQUIRES(mutex_);
  void resume(Clock::time_point deadline) GPUMEM_REQUIRES(mutex_);
  void go_on(LaneSocket reopened) GPUMEM_REQUIRES(mutex_);
  void send_again(Call& call) GPUMEM_REQUIRES(mutex_);
  Result<void> begin(Call& call) GPUMEM_REQUIRES(mutex_);
  Result<void> await(Call& call) GPUMEM_REQUIRES(mutex_);
  Clock::time_point patience_ends(const Call& call) const GPUMEM_REQUIRES(mutex_);
  Result<void> check_patience(Call& call) GPUMEM_REQUIRES(mutex_);
  Error give_up(const Call& call) GPUMEM_REQUIRES(mutex_);
  bool may_read() const GPUMEM_REQUIRES(mutex_) { return !reading_ && undrained_ == nullptr; }
  bool read(Clock::time_point until) GPUMEM_REQUIRES(mutex_);
  void read_what_is_there() GPUMEM_REQUIRES(mutex_);
  void dispatch(LanePacket& packet) GPUMEM_REQUIRES(mutex_);
  void dispatch_to(Call& call, const lane::Incoming& frame, LanePacket& packet) GPUMEM_REQUIRES(mutex_);
  void give_back(const lane::Incoming& frame) GPUMEM_REQUIRES(mutex_);
  void fail_all(const Error& error) GPUMEM_REQUIRES(mutex_);
  void fail(Call& call, Error error) GPUMEM_REQUIRES(mutex_);
  void close() GPUMEM_REQUIRES(mutex_);
  void probe(Clock::time_point now) GPUMEM_REQUIRES(mutex_);
  void queue(const lane::Outgoing& frame) GPUMEM_REQUIRES(mutex_);
  void send_queued() GPUMEM_REQUIRES(mutex_);
  /// kYes: nothing is left of it.
  LaneSocket::Sent send_queue() GPUMEM_REQUIRES(mutex_);
  void note_told(std::string_view frame) GPUMEM_REQUIRES(mutex_);
  void wake_reader() GPUMEM_REQUIRES(mutex_);
  Call* find(std::uint64_t request) const GPUMEM_REQUIRES(mutex_);
  void link(Call& call) GPUMEM_REQUIRES(mutex_);
  void unlink(Call& call) GPUMEM_REQUIRES(mutex_);
  Error error(std::string_view what) const;
  Error gone() const GPUMEM_REQUIRES(mutex_);
  Error silent() const { return error("does not answer"); }

  // Between two attempts to find another broker.
  static constexpr std::chrono::milliseconds kFirstPause{2};
  static constexpr std::chrono::milliseconds kLongestPause{100};

  const LaneSocket socket_;
  const std::string peer_;
  const std::chrono::milliseconds timeout_;
  std::atomic<std::uint64_t> last_request_{0};
  Mutex mutex_;
  Call* calls_ GPUMEM_GUARDED_BY(mutex_) = nullptr;
  /// The call with a frame that is not the last of its answer and was not taken yet. Nobody reads on, or the
  /// descriptors of a large grant would all be open at once.
  Call* undrained_ GPUMEM_GUARDED_BY(mutex_) = nullptr;
  Clock::time_point heard_ GPUMEM_GUARDED_BY(mutex_);        ///< when something came last
  Clock::time_point probed_ GPUMEM_GUARDED_BY(mutex_);       ///< when a Ping was sent to hear something
  std::deque<std::string> queue_ GPUMEM_GUARDED_BY(mutex_);  ///< frames that there was no room for
  // Another broker.
  struct Told {
    std::uint64_t request = 0, bytes = 0;
  };
  /// The charges that the process has declared, by device; those alone that no broker has refused. Its
  /// holdings do not contain them.
  std::map<std::uint64_t, Told> charges_ GPUMEM_GUARDED_BY(mutex_);
  std::uint64_t connection_ GPUMEM_GUARDED_BY(mutex_) = 0;  ///< another number: another connection
  std::chrono::milliseconds pause_ GPUMEM_GUARDED_BY(mutex_) = kFirstPause;
  Clock::time_point next_attempt_
      GPUMEM_GUARDED_BY(mutex_){};  ///< to reach a broker, by a thread that may wait
  Resumption resumption_ GPUMEM_GUARDED_BY(mutex_);
  std::optional<Error> lost_ GPUMEM_GUARDED_BY(mutex_);  ///< why nobody resumes the session
  std::string obstacle_ GPUMEM_GUARDED_BY(mutex_);       ///< Resumption::obstacle
  SessionHoldings holdings_ GPUMEM_GUARDED_BY(mutex_);
  Condition reopened_;  ///< of closed_, resuming_ and lost_

  bool reading_ GPUMEM_GUARDED_BY(mutex_) = false;
  bool silent_ GPUMEM_GUARDED_BY(mutex_) = false;
  bool closed_ GPUMEM_GUARDED_BY(mutex_) = false;
  bool resuming_ GPUMEM_GUARDED_BY(mutex_) = false;
  bool absent_ GPUMEM_GUARDED_BY(mutex_) = false;  ///< a call has waited in vain for another broker
};

}  // namespace gpumem::client
