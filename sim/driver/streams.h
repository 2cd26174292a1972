#pragma once
#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/driver/reused_handles.h"

namespace gpumem::sim {

/// A queue of work that is done in order, by a thread of its own that starts with the first work.
struct Stream;
/// Keeps a stream usable, destroyed or not. Never empty where it is given to a function.
using StreamRef = std::shared_ptr<Stream>;

/// A point in a stream's order: done when all work before it is. A default one is always done.
/// Threads: any. May outlive its stream, which finishes its work before it goes.
class Ticket {
 public:
  Ticket() = default;
  bool is_done() const;
  /// Blocks until it is done. The driver's lock must not be held.
  void wait() const;
  /// The stream it belongs to, as a number that is never given out again; 0: none.
  std::uint64_t stream() const;
  /// How far into the stream's order it is.
  std::uint64_t position() const { return position_; }

 private:
  friend class Streams;
  Ticket(StreamRef stream, std::uint64_t position) : stream_(std::move(stream)), position_(position) {}

  StreamRef stream_;
  std::uint64_t position_ = 0;
};

/// The implicit order of streams (CUDA's rules for the legacy default stream). Work that is submitted to the
/// legacy default stream of a context comes after all work of the context's blocking streams, and before
/// their later work. Non-blocking streams take no part.
enum class StreamKind : std::uint8_t { kLegacyDefault, kBlocking, kNonBlocking };

using Work = std::function<void()>;

struct StreamOptions {
  std::uint64_t context = 0;
  StreamKind kind = StreamKind::kBlocking;
  unsigned flags = 0;
  int priority = 0;
  bool is_thread_default = false;
};

/// What tells it from every other stream there ever was.
std::uint64_t number_of(const Stream& stream);
/// What the program names it by. A later stream may have the same.
std::uint64_t handle_of(const Stream& stream);
const StreamOptions& options_of(const Stream& stream);
/// The attributes that the program set, by CUstreamAttrID. Threads: the caller holds the driver's lock.
std::map<int, CUstreamAttrValue>& attributes_of(Stream& stream);

/// All streams of one process, by handle. Threads: any; has a lock of its own, under which nothing is called.
class Streams {
 public:
  StreamRef create(const StreamOptions& options);
  /// Work that was submitted is still done, and waited for as before. No effect on one that was destroyed.
  void destroy(const StreamRef& stream);
  /// Ends the streams of `context` likewise.
  void destroy_all_of(std::uint64_t context);

  /// nullptr if there is none. Ends the process if it was destroyed.
  StreamRef find(std::uint64_t handle) const;
  /// The default stream of `context`, made when first asked for: the legacy one, or the calling thread's own.
  StreamRef legacy_default(std::uint64_t context);
  StreamRef thread_default(std::uint64_t context);

  /// Adds work that is done after what is in the stream and after all of `others`.
  Ticket submit(const StreamRef& stream, Work work, std::vector<Ticket> others = {});
  /// Submits work that takes no time. The calling thread does it if no earlier work is pending.
  Ticket submit_short(const StreamRef& stream, Work work, std::vector<Ticket> others = {});
  /// Submits work and waits for it; where nothing is in the way the calling thread does it itself. The
  /// driver's lock must not be held.
  void run(const StreamRef& stream, const Work& work);

  /// Notes that later work of the stream comes after `ticket`, because it waits for an event there.
  void follow(const StreamRef& stream, const Ticket& ticket);
  /// Whether what is submitted to the stream from now on comes after `ticket` in any case: by the stream's
  /// own order, by the rules of the default stream or by what follow() noted.
  bool is_after(const StreamRef& stream, const Ticket& ticket) const;

  /// The submitted work of the stream that is not done, and the work that it comes after.
  std::vector<Ticket> pending(const StreamRef& stream) const;
  /// The pending work of all streams of `context`.
  std::vector<Ticket> pending_in(std::uint64_t context) const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  std::vector<Ticket> in_the_way(const Stream& stream) const;
  Ticket append(const StreamRef& stream, Work work, std::vector<Ticket> others);
  bool begin_at_once(const StreamRef& stream, const std::vector<Ticket>& others);
  static void finish_at_once(const StreamRef& stream);
  void end(const StreamRef& stream);
  bool is_there(const StreamRef& stream) const;
  template <class Visit>
  void for_each_busy(std::uint64_t context, Visit visit) const;

  std::map<std::uint64_t, StreamRef> streams_;
  std::map<std::uint64_t, StreamRef> legacy_;  ///< by context
  std::vector<StreamRef> ending_;              ///< destroyed, with work that may not be done yet
  ReusedHandles handles_{0xd0'0000'0000};
  std::uint64_t last_id_ = 0;
};

}  // namespace gpumem::sim
