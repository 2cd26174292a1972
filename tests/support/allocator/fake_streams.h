#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "client/allocator/backing.h"

namespace gpumem::test {

/// Streams without a device: their work ends when the test says so, or when a mark is waited for. Knows which
/// work begins after which, as far as marks and the host's waiting order it, and answers that to a test.
/// Null and 1 are one stream, 2 is another one in every thread. Their work is in the order in which it is
/// given, as CUDA has it of the legacy default stream and blocking streams. All other streams are
/// non-blocking. Every call that breaks a rule of allocator::StreamPort ends the program with words
/// (broken_rule.h). Threads  any.
class FakeStreams final : public allocator::StreamPort {
 public:
  enum class Call { kMeet, kMark, kOrder, kWait, kWaitForContexts, kIdOf, kRenew };
  /// A moment in one stream's work: all of it up to and with the `number`th piece. Marks are pieces, too.
  struct Moment {
    std::uint64_t stream = 0;
    std::uint64_t number = 0;
  };

  // Actions of a program, and of its device.
  /// Destroys the stream. Its work goes on. The handle names a new stream from now on.
  void end(StreamHandle stream);
  /// Gives one more piece of work to `stream`: the moment of its end.
  Moment give(StreamHandle stream);
  /// The end of what was given so far.
  Moment now(StreamHandle stream);
  /// Work given to `stream` from now on begins after `moment`, by the program's own event.
  void put_behind(StreamHandle stream, Moment moment);
  /// The device ends the work given to `stream` so far, and what that is behind.
  void finish(StreamHandle stream);
  void finish_all();
  /// The device ends every piece of work once `pieces` more have been given, to whatever stream. Zero: never.
  void set_lag(std::uint64_t pieces);
  /// From now on no mark can be asked about, as while a graph is being captured.
  void set_capturing(bool capturing);
  /// Whether captures that begin and end unseen take the marks that are set from now on.
  void set_taking(bool taking);

  // What a test asks.
  /// Whether work given to `stream` now begins after `moment`, for all the allocator can know: through marks,
  /// the program's events, or because the host has been told that the device came there.
  bool is_behind(StreamHandle stream, Moment moment);
  /// Whether the host has been told that the device has come to `moment`.
  bool is_known_reached(Moment moment) const;
  /// For messages: the stream's number and its handle.
  std::string name(std::uint64_t stream) const;
  std::uint64_t calls(Call call) const;
  std::size_t marks() const;       ///< set and not dropped
  std::size_t most_marks() const;  ///< at a time, so far

  /// The `nth` call from now on, the first being 1, fails with `error`, and nothing changes. `times`: it and
  /// those after it, so many in all.
  void fail(Call call, std::uint64_t nth, Error error = {Code::kInternal, "made to fail"},
            std::uint64_t times = 1);
  bool heal();
  /// From now on streams are released before they end. Before an engine has them.
  void announce_ends() { announces_ends_ = true; }
  /// Called at the beginning of every wait, with no lock held.
  void on_wait(std::function<void()> call);

  bool announces_ends() const override { return announces_ends_; }
  Result<Id> meet(StreamHandle stream) override;
  Result<Mark> mark(StreamHandle stream) override;
  std::optional<Id> id_of(StreamHandle stream) override;
  bool renew(Mark mark, StreamHandle stream) override;
  Progress ask(Mark mark) override;
  Result<void> order(StreamHandle stream, Mark mark) override;
  Result<void> wait(Mark mark) override;
  void drop(Mark mark) override;
  void forget(StreamHandle, Id) override {}
  Result<void> wait_for_contexts() override;

 private:
  /// Up to where work is known to be over, by stream.
  using Clock = std::map<std::uint64_t, std::uint64_t>;
  struct Barrier {
    std::uint64_t after = 0;  ///< pieces of the stream itself
    Moment moment;
  };
  struct Stream {
    StreamHandle handle = nullptr;
    std::uint64_t given = 0, done = 0;
    std::deque<Barrier> barriers;  ///< not passed yet
    Clock behind;
    bool met = false;
  };
  struct Marked {
    Moment moment;
    Clock behind;
    bool taken = false;  ///< by a capture
    mutable bool is_known =
        false;  ///< was asked about, waited for or ordered behind: not the setter's own any more
  };
  struct Failure {
    std::uint64_t nth = 0;  ///< calls until it comes; zero: none is to come
    std::uint64_t times = 0;
    Error error;
  };
  struct Pending {
    Moment moment;
    std::uint64_t at = 0;  ///< by the count of all pieces
  };

  std::uint64_t key(StreamHandle stream);  // the rest: under mutex_
  Stream& known(StreamHandle stream, const char* what);
  const Marked& live(Mark mark, const char* what) const;
  Marked set_behind(StreamHandle stream);
  Moment add_piece(std::uint64_t of);
  /// Whether CUDA's rule for the legacy default stream orders work of one behind earlier work of the other.
  static bool are_ordered(const Stream& a, const Stream& b);
  static bool is_default(const Stream& stream);  ///< the legacy one, or a thread's
  void run(Moment moment);                       ///< the device ends it, and what it is behind
  void learn(Moment moment, const Clock& behind);
  /// Whether the host knows the first `number` pieces of stream `of` to be over.
  bool knows(std::uint64_t of, std::uint64_t number) const;
  void put_behind(Stream& stream, Moment moment, const Clock& behind);
  std::optional<Error> counted(Call call);

  mutable std::mutex mutex_;
  std::atomic<int> inside_{0};  ///< calls of the engine that must not overlap
  std::map<std::pair<StreamHandle, std::thread::id>, std::uint64_t> keys_;
  std::unordered_map<std::uint64_t, Stream> streams_;
  std::vector<std::uint64_t> defaults_;  ///< the default ones among them
  std::uint64_t next_key_ = 1, next_mark_ = 1, pieces_ = 0, lag_ = 0;
  std::unordered_map<std::uint64_t, Marked> marks_;
  std::deque<Pending> pending_;  ///< with a lag: what is to end, oldest first
  Clock known_;                  ///< to the host
  bool capturing_ = false, taking_ = false, announces_ends_ = false;
  std::array<std::uint64_t, 7> calls_{};
  std::array<Failure, 7> failures_{};
  std::size_t most_marks_ = 0;
  std::function<void()> on_wait_;

  friend class Exclusive;
};

/// `streams` as an engine takes them. The engine's use of them must have ended with the engine.
std::unique_ptr<allocator::StreamPort> borrow(FakeStreams& streams);

}  // namespace gpumem::test
