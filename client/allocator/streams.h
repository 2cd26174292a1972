#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "client/allocator/slot.h"
#include "client/allocator/stream_port.h"

namespace gpumem::allocator {

/// The streams that an allocator has met, and how far the device is known to have come in each. What becomes
/// free on a stream carries the stream's epoch, the number of its marks so far; once a mark with a higher
/// number has been reached, no work uses it any more. A mark is set when somebody else wants what the stream
/// has, or what idles is looked for: freeing itself costs no call of the driver.
class Streams {
 public:
  explicit Streams(StreamPort& port) : port_(port) {}
  ~Streams() { drop_marks(); }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  /// `thread`  the caller's number: the per-thread default stream is another one in each.
  /// Errors  kResourceExhausted: too many streams; the driver's.
  Result<StreamIndex> index_of(StreamHandle handle, std::uint64_t thread);
  /// Nothing: it was never met, or is forgotten.
  std::optional<StreamIndex> find(StreamHandle handle, std::uint64_t thread) const;
  std::size_t count() const { return entries_.size(); }
  StreamHandle handle(StreamIndex stream) const { return entries_[stream].handle; }
  static bool is_per_thread(StreamHandle handle);
  /// Whether `thread` may set marks on `stream`.
  bool can_mark(StreamIndex stream, std::uint64_t thread) const;

  std::uint64_t epoch(StreamIndex stream) const { return entries_[stream].epoch; }
  /// What became free before this epoch is known to be used by no work.
  std::uint64_t reached(StreamIndex stream) const { return entries_[stream].reached; }
  void note_reached(StreamIndex stream, std::uint64_t epoch) {
    entries_[stream].reached = std::max(entries_[stream].reached, epoch);
  }

  /// Sets a mark unless one is under way, and asks how far the device has come: what became free before the
  /// answered epoch is used by no work. Nothing: not known to have come further.
  std::optional<std::uint64_t> poll(StreamIndex stream, std::uint64_t thread);
  /// Sets a mark behind everything that is free now. On a per-thread stream after each freeing.
  Result<void> mark(StreamIndex stream, std::uint64_t thread);
  /// The same, of a per-thread stream: nobody else can set marks on it when somebody wants what it has.
  void mark_if_own(StreamIndex stream, std::uint64_t thread) {
    if (is_per_thread(entries_[stream].handle)) (void)mark(stream, thread);
  }
  /// Work given to `later` from now on begins after what uses pieces that became free in `epoch` or before.
  bool order(StreamIndex later, StreamIndex stream, std::uint64_t epoch, std::uint64_t thread);

  /// A mark to be waited for without the allocator's lock: then settle(stream, epoch), and drop it.
  struct Awaited {
    StreamIndex stream;
    std::uint64_t epoch;
    StreamPort::Mark mark;
  };
  std::optional<Awaited> await(StreamIndex stream, std::uint64_t thread);

  /// The stream is going to be destroyed: another one may come with the same handle.
  /// Errors  the driver's: there is no mark behind its work, and it is not forgotten.
  Result<void> forget(StreamIndex stream, std::uint64_t thread);
  const std::vector<StreamIndex>& forgotten() const { return forgotten_; }
  bool is_forgotten(StreamIndex stream) const { return entries_[stream].forgotten; }
  /// Nothing is known of `stream` any more: its number may be used for another.
  void retire(StreamIndex stream);

  /// Gives up all marks.
  void drop_marks();

 private:
  struct Entry {
    StreamHandle handle = nullptr;
    std::uint64_t thread = 0;
    std::uint64_t epoch = 0;
    StreamPort::Mark pending{};  ///< covers what became free before `epoch`
    std::uint64_t pending_epoch = 0;
    std::uint64_t reached = 0;
    bool forgotten = false;
  };
  using Key = std::pair<StreamHandle, std::uint64_t>;
  static Key key_of(StreamHandle handle, std::uint64_t thread);
  void drop_pending(Entry& entry);

  StreamPort& port_;
  std::vector<Entry> entries_{1};  // kNoStream
  std::vector<StreamIndex> forgotten_;
  std::vector<StreamIndex> retired_;
  std::map<Key, StreamIndex> known_;
};

}  // namespace gpumem::allocator
