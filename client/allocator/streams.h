#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "client/allocator/slot.h"
#include "client/allocator/stream_port.h"

namespace gpumem::allocator {

/// The streams that an allocator knows, and how far the device is known to have come in each. Freed memory
/// carries its stream's epoch, the number of marks set on the stream so far. Once a mark with a higher number
/// has been reached, no work uses the memory any more. A mark is set when another stream needs the memory or
/// when the background thread looks for idle memory, so freeing makes no driver call.
class Streams {
 public:
  explicit Streams(StreamPort& port) : port_(port) {}
  ~Streams() { drop_marks(); }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  /// `thread`  the caller's number, because the per-thread default stream is a different one in each thread.
  /// Errors  kResourceExhausted: too many streams; the driver's.
  Result<StreamIndex> index_of(StreamHandle handle, std::uint64_t thread);
  /// Nothing if the stream is not known, or was forgotten.
  std::optional<StreamIndex> find(StreamHandle handle, std::uint64_t thread) const;
  std::size_t count() const { return entries_.size(); }
  StreamHandle handle(StreamIndex stream) const { return entries_[stream].handle; }
  static bool is_per_thread(StreamHandle handle);
  /// Whether `thread` may set marks on `stream`.
  bool can_mark(StreamIndex stream, std::uint64_t thread) const;

  std::uint64_t epoch(StreamIndex stream) const { return entries_[stream].epoch; }
  /// No work uses what became free before this epoch.
  std::uint64_t reached(StreamIndex stream) const { return entries_[stream].reached; }
  void note_reached(StreamIndex stream, std::uint64_t epoch) {
    entries_[stream].reached = std::max(entries_[stream].reached, epoch);
  }

  /// Sets a mark unless one is pending, and asks whether the device has reached it. Returns the mark's epoch:
  /// no work uses what became free before it. Nothing if the mark has not been reached.
  std::optional<std::uint64_t> poll(StreamIndex stream, std::uint64_t thread);
  /// Sets a mark behind everything that is free now. On a per-thread stream, after each free.
  Result<void> mark(StreamIndex stream, std::uint64_t thread);
  /// As mark(), if `stream` is the thread's own default stream, because no other thread can set marks on it.
  void mark_if_own(StreamIndex stream, std::uint64_t thread) {
    if (is_per_thread(entries_[stream].handle)) (void)mark(stream, thread);
  }
  /// Orders work given to `later` from now on after the work that may use spans freed in `epoch` or before.
  bool order(StreamIndex later, StreamIndex stream, std::uint64_t epoch, std::uint64_t thread);

  /// A mark to wait for without the allocator's lock. Afterwards settle(stream, epoch), and drop the mark.
  struct Awaited {
    StreamIndex stream;
    std::uint64_t epoch;
    StreamPort::Mark mark;
  };
  std::optional<Awaited> await(StreamIndex stream, std::uint64_t thread);

  /// The stream is about to be destroyed, and another one may get the same handle.
  /// Errors  the driver's; then no mark was set, and the stream is not forgotten.
  Result<void> forget(StreamIndex stream, std::uint64_t thread);
  const std::vector<StreamIndex>& forgotten() const { return forgotten_; }
  bool is_forgotten(StreamIndex stream) const { return entries_[stream].forgotten; }
  /// Removes `stream`. Its number may be used for another stream.
  void retire(StreamIndex stream);

  /// Drops all marks.
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
