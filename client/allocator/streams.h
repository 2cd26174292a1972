#pragma once

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/allocator/backing.h"
#include "client/allocator/cached_blocks.h"
#include "client/allocator/span.h"

namespace gpumem::allocator {

/// The streams that an allocator knows, and how far the device is known to have come in each. Freed memory
/// carries its stream's epoch, the number of marks set on the stream so far. Once a mark with a higher number
/// has been reached, no work uses the memory any more.
/// A mark is set by the call that frees, because the stream may end as soon as that call returns. The legacy
/// default stream does not end, and the end of some streams is announced (StreamPort::announces_ends). These
/// streams are marked late: when somebody needs their memory.
/// Invariant  the handle of a stream that is not marked late is passed on only in a call that names it, or
///            that frees a block for which it was recorded.
class Streams {
 public:
  /// `make_place`  is called when a new stream has none: it retires the idle ones.
  Streams(StreamPort& port, std::function<void()> make_place)
      : port_(port), make_place_(std::move(make_place)) {}
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  static bool is_legacy(StreamHandle handle) { return reinterpret_cast<std::uintptr_t>(handle) <= 1; }
  static bool is_per_thread(StreamHandle handle) { return reinterpret_cast<std::uintptr_t>(handle) == 2; }
  static bool is_default(StreamHandle handle) { return is_legacy(handle) || is_per_thread(handle); }

  /// The stream that `handle` names now.
  /// Errors  kResourceExhausted: too many streams; the driver's.
  Result<StreamIndex> index_of(StreamHandle handle);
  /// The stream that `handle` names now, if it is known. Else kNoStream.
  StreamIndex known(StreamHandle handle) const;
  /// The id of a stream that threads may cache blocks of. Zero: it is a default stream, or has no id.
  StreamPort::Id cached_id(StreamIndex stream) const;
  /// Whether frees set no mark.
  bool is_marked_late(StreamIndex stream) const {
    return stream == legacy_ || (port_.announces_ends() && cached_id(stream) != StreamPort::Id{});
  }
  /// The legacy default stream. kNoStream if it was never used.
  StreamIndex legacy() const { return legacy_; }
  StreamHandle handle(StreamIndex stream) const { return entries_[stream].handle; }

  /// A stream is kept while something holds it: a block that was allocated on it, or a call.
  /// The legacy default stream is kept in any case, so its holders are not counted.
  void hold(StreamIndex stream) { entries_[stream].holders += stream != legacy_ ? 1 : 0; }
  void let_go(StreamIndex stream) { entries_[stream].holders -= stream != legacy_ ? 1 : 0; }

  std::uint64_t epoch(StreamIndex stream) const { return entries_[stream].epoch; }
  /// The latest epoch in which something became free.
  std::uint64_t last_free(StreamIndex stream) const;
  /// No work uses what became free before this epoch.
  std::uint64_t reached(StreamIndex stream) const { return entries_[stream].reached; }
  void note_reached(StreamIndex stream, std::uint64_t epoch);

  /// Something became free on `stream`, in a call that names it, or if that is marked late, in any. If no
  /// mark can be set now (a graph is being captured), the next call that names the stream sets it.
  void freed(StreamIndex stream);
  /// A block is freed that the work given to `stream` so far may use. Returns the epoch that must be reached,
  /// as of something that becomes free on the stream. Sets no mark in a thread that is about to end.
  std::uint64_t freed_elsewhere(StreamIndex stream);
  /// The epoch of the latest mark that the device has reached. Nothing if it has reached no other.
  std::optional<std::uint64_t> poll(StreamIndex stream);
  /// The streams with marks that are not known to be reached, and those marked late on which something became
  /// free that no mark covers.
  std::vector<StreamIndex> pending() const;
  /// Orders work given to `later` from now on after the work that may use spans freed in `epoch` or before.
  /// In a call that names `later`.
  bool order(StreamIndex later, StreamIndex stream, std::uint64_t epoch);

  // Marks of threads' caches (CachedBlocks). In a call that names `stream`.
  /// A mark behind all work given to the stream so far. The caller drops it or hands it over.
  Result<StreamPort::Mark> set_apart(StreamIndex stream);
  bool renew(CachedBlocks& blocks) { return blocks.renew(port_, handle(blocks.stream())); }
  void drop(StreamPort::Mark mark) {
    if (mark != StreamPort::Mark{}) port_.drop(mark);
  }
  /// Adds a mark that a thread's cache had. The caller then frees memory in the epoch last_free(), and does
  /// not use `mark` any more. Work that uses this memory is before `mark` or an earlier mark of the stream.
  void hand_over(StreamIndex stream, StreamPort::Mark mark);

  /// A mark that is dropped, under the allocator's lock, when nobody needs it any more.
  using SharedMark = std::shared_ptr<const StreamPort::Mark>;
  using SharedMarks = boost::container::small_vector<SharedMark, 1>;
  /// Marks to wait for without the allocator's lock. Afterwards settle(stream, epoch).
  struct Awaited {
    StreamIndex stream;
    std::uint64_t epoch;
    SharedMarks marks;
  };
  /// The marks behind everything that is free, as far as marks could be set.
  std::vector<Awaited> awaited();
  /// Whether something is free that no mark covers.
  bool has_unmarked() const { return std::ranges::any_of(entries_, &Entry::unmarked); }

  /// The stream that `handle` names is about to be destroyed, and another one may get the same handle. Calls
  /// no driver if the handle is not known.
  /// Errors  the driver's; then no mark could be set. A stream that is marked late is forgotten nevertheless,
  ///         and what is free on it serves nobody; another one is not forgotten.
  Result<void> forget(StreamHandle handle);
  /// Whether nothing holds the stream, and no mark of it is missing or pending.
  bool is_idle(StreamIndex stream) const;
  /// Removes all idle streams. Their numbers may be used for other streams.
  void retire_idle();

  void drop_marks() {
    for (Entry& entry : entries_) {
      entry.marks.clear();
      entry.spare.reset();
    }
  }

 private:
  /// The thread's number too, because not every driver has ids.
  using Key = std::tuple<StreamHandle, StreamPort::Id, std::uint64_t>;
  /// Reached when all of `marks` are. A mark that a call sets is behind all earlier ones. A mark that was
  /// handed over is behind the frees of one thread only, so the marks before it stay beside it.
  struct SetMark {
    SharedMarks marks;
    std::uint64_t epoch = 0;  ///< covers what became free before it
    bool is_told = false;     ///< somebody asked for the marks, or waits for them
    /// Whether this is one mark, which nobody else knows of.
    bool is_own() const { return marks.size() == 1 && marks.front().use_count() == 1 && !is_told; }
  };
  struct Entry {
    StreamHandle handle = nullptr;
    std::optional<Key> key;  ///< none: no handle leads here any more
    std::uint64_t holders = 0;
    // From 1 on: what was never free on the stream, as some slabs, has epoch 0, and waits for nothing.
    std::uint64_t epoch = 1;
    std::uint64_t reached = 1;
    bool unmarked = false;  ///< something is free that no mark covers
    bool unmet = false;     ///< named only by threads that were about to end, and that called no driver
    bool retired = false;
    /// The oldest one not known to be reached, and the latest. The oldest stays until it is reached: on a
    /// stream that is always busy, none would ever be reached if newer marks replaced it.
    std::vector<SetMark> marks;
    SharedMark spare;  ///< a former latest mark, which the next free moves; or null
  };
  static constexpr std::size_t kFirstSweep = 64;

  Result<Key> key_of(StreamHandle handle) const;
  static StreamPort::Id id_of(const Entry& entry);  ///< as cached_id()
  Result<void> meet(Entry& entry);
  /// Whether a mark is due now that somebody needs the memory.
  bool is_mark_due(StreamIndex stream) const {
    return is_marked_late(stream) && (stream == legacy_ || entries_[stream].unmarked);
  }
  /// `is_met`  as StreamPort::mark_met.
  Result<void> mark(Entry& entry, bool is_met = false);
  SharedMark share(StreamPort::Mark mark);
  /// Moves the spare mark behind all work of the stream, in place of the latest mark, which becomes the
  /// spare. In a call that names the stream. False: there is none, or it could not be set.
  bool renew(Entry& entry);
  /// Adds marks that cover all that is free by now.
  static void add_mark(Entry& entry, SharedMarks marks);
  StreamPort::Progress ask(SetMark& set);
  Result<StreamIndex> add(const Key& key);
  /// No stream but the one with `id` has the handle.
  void end_namesakes(StreamHandle handle, StreamPort::Id id);
  void remove_key(Entry& entry);

  StreamPort& port_;
  const std::function<void()> make_place_;
  std::vector<Entry> entries_{1};  // kNoStream
  std::vector<StreamIndex> retired_;
  std::map<Key, StreamIndex> known_;
  StreamIndex legacy_ = kNoStream;        ///< once it is known
  std::size_t next_sweep_ = kFirstSweep;  ///< entries, before idle ones are looked for
};

/// The further streams that use blocks (Allocator::record_stream), and the freed blocks that wait for these.
/// Holds each stream that it names.
/// Threads  under the allocator's lock.
class RecordedStreams {
 public:
  explicit RecordedStreams(Streams& streams) : streams_(streams) {}

  /// `stream` uses the block in use at `address`, too.
  void record(Address address, StreamIndex stream) {
    auto& users = recorded_[address];
    if (std::ranges::find(users, stream) != users.end()) return;
    users.push_back(stream);
    streams_.hold(stream);
  }

  /// Holds `block`, which is freed on `stream`. False: no other stream uses it, so it is free.
  bool hold(const Block& block, StreamIndex stream) {
    HeldBlock held{.block = block, .freed = {stream, streams_.epoch(stream)}, .users = {}};
    const auto node = recorded_.extract(block.address);
    for (const StreamIndex user : node.mapped()) {
      if (user == stream) {
        streams_.let_go(user);
      } else {
        held.users.push_back({user, streams_.freed_elsewhere(user)});
      }
    }
    if (held.users.empty()) return false;
    streams_.hold(stream);
    held_.push_back(std::move(held));
    return true;
  }

  /// Removes the blocks that their recorded streams do not use any more, and calls `free` with each, the
  /// stream it was freed on, and the epoch of that.
  template <class Free>
  void free_idle(Free free) {
    const auto is_used_still = [this](const Use& use) { return streams_.reached(use.stream) <= use.epoch; };
    std::erase_if(held_, [&](const HeldBlock& held) {
      if (std::ranges::any_of(held.users, is_used_still)) return false;
      free(held.block, held.freed.stream, held.freed.epoch);
      streams_.let_go(held.freed.stream);
      for (const Use& use : held.users) streams_.let_go(use.stream);
      return true;
    });
  }

 private:
  struct Use {
    StreamIndex stream = kNoStream;
    std::uint64_t epoch = 0;
  };
  /// A freed block whose recorded streams may still use it.
  struct HeldBlock {
    Block block;
    Use freed;               ///< the stream it was freed on
    std::vector<Use> users;  ///< the recorded streams
  };

  Streams& streams_;
  std::unordered_map<Address, std::vector<StreamIndex>> recorded_;  ///< blocks in use
  std::vector<HeldBlock> held_;
};

}  // namespace gpumem::allocator
