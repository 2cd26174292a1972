#include "sim/driver/streams.h"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace gpumem::sim {
namespace {

/// Guards every stream. Never destroyed: threads of streams outlive the end of main().
struct Shared {
  std::mutex mutex;
  std::condition_variable done;
};
Shared& shared() {
  static auto* const instance = new Shared();
  return *instance;
}

/// Tells which default streams a thread has made, so that they end with it; in a forked child they do not
/// exist, and the lock may be held for good.
struct ThreadDefaults {
  Streams* streams = nullptr;
  pid_t process = ::getpid();
  std::map<std::uint64_t, StreamRef> by_context;
  ~ThreadDefaults() {
    if (process != ::getpid()) return;
    for (const auto& [context, stream] : by_context) streams->destroy(stream);
  }
};
thread_local ThreadDefaults thread_defaults;

}  // namespace

struct Stream {
  struct Item {
    std::uint64_t position;
    Work work;
    std::vector<Ticket> others;
  };

  std::uint64_t id = 0;
  std::uint64_t handle = 0;
  StreamOptions options;
  std::map<int, CUstreamAttrValue> attributes;
  std::uint64_t submitted = 0;  ///< the position of the last work
  std::uint64_t completed = 0;  ///< all work up to this position is done
  std::deque<Item> items;  ///< waiting; the first one's position is completed + 1 unless one is being done
  std::condition_variable changed;
  bool has_worker = false;
  bool is_closing = false;
  std::map<std::uint64_t, std::uint64_t> followed;  ///< by stream: later work comes after this position of it
};

namespace {

bool done(const StreamRef& stream, std::uint64_t position) {
  return stream == nullptr || stream->completed >= position;
}

}  // namespace

bool Ticket::is_done() const {
  const std::lock_guard lock(shared().mutex);
  return done(stream_, position_);
}

void Ticket::wait() const {
  std::unique_lock lock(shared().mutex);
  shared().done.wait(lock, [this] { return done(stream_, position_); });
}

std::uint64_t Ticket::stream() const { return stream_ == nullptr ? 0 : stream_->id; }

std::uint64_t number_of(const Stream& stream) { return stream.id; }
std::uint64_t handle_of(const Stream& stream) { return stream.handle; }
const StreamOptions& options_of(const Stream& stream) { return stream.options; }
std::map<int, CUstreamAttrValue>& attributes_of(Stream& stream) { return stream.attributes; }

namespace {

/// The thread of one stream: does what is in it, in order, until the stream is closed and empty.
void serve(const StreamRef& stream) {
  std::unique_lock lock(shared().mutex);
  for (;;) {
    stream->changed.wait(lock, [&] {
      return stream->items.empty() ? stream->is_closing
                                   : stream->items.front().position == stream->completed + 1;
    });
    if (stream->items.empty()) {
      stream->has_worker = false;
      return;
    }
    Stream::Item item = std::move(stream->items.front());
    stream->items.pop_front();
    lock.unlock();
    for (const Ticket& other : item.others) other.wait();
    item.work();
    item.work = nullptr;  // what it holds goes outside the lock
    lock.lock();
    stream->completed = item.position;
    shared().done.notify_all();
  }
}

bool is_idle(const Stream& stream) { return stream.completed == stream.submitted; }

void close(Stream& stream) {
  stream.is_closing = true;
  stream.changed.notify_all();
}

}  // namespace

StreamRef Streams::create(const StreamOptions& options) {
  const std::lock_guard lock(shared().mutex);
  auto stream = std::make_shared<Stream>();
  stream->id = ++last_id_;
  stream->handle = handles_.take();
  stream->options = options;
  return streams_[stream->handle] = stream;
}

void Streams::destroy(const StreamRef& stream) {
  const std::lock_guard lock(shared().mutex);
  if (!is_there(stream)) return;
  end(stream);
  streams_.erase(stream->handle);
}

bool Streams::is_there(const StreamRef& stream) const {
  const auto found = streams_.find(stream->handle);
  return found != streams_.end() && found->second == stream;
}

void Streams::end(const StreamRef& stream) {
  close(*stream);
  handles_.give_back(stream->handle);
  std::erase_if(ending_, [](const StreamRef& one) { return is_idle(*one); });
  if (!is_idle(*stream)) ending_.push_back(stream);
}

/// All streams of `context` that have work, destroyed or not.
template <class Visit>
void Streams::for_each_busy(std::uint64_t context, Visit visit) const {
  const auto look = [&](const StreamRef& stream) {
    if (stream->options.context == context && !is_idle(*stream)) visit(stream);
  };
  for (const auto& [handle, stream] : streams_) look(stream);
  for (const StreamRef& stream : ending_) look(stream);
}

void Streams::destroy_all_of(std::uint64_t context) {
  const std::lock_guard lock(shared().mutex);
  legacy_.erase(context);
  std::erase_if(streams_, [&](const auto& entry) {
    if (entry.second->options.context != context) return false;
    end(entry.second);
    return true;
  });
}

StreamRef Streams::find(std::uint64_t handle) const {
  const std::lock_guard lock(shared().mutex);
  const auto found = streams_.find(handle);
  if (found != streams_.end()) return found->second;
  handles_.check_not_destroyed(handle, "stream");
  return nullptr;
}

StreamRef Streams::legacy_default(std::uint64_t context) {
  {
    const std::lock_guard lock(shared().mutex);
    if (const auto found = legacy_.find(context); found != legacy_.end()) return found->second;
  }
  StreamRef made = create({.context = context, .kind = StreamKind::kLegacyDefault});
  const std::lock_guard lock(shared().mutex);
  return legacy_.try_emplace(context, std::move(made)).first->second;
}

StreamRef Streams::thread_default(std::uint64_t context) {
  thread_defaults.streams = this;
  StreamRef& own = thread_defaults.by_context[context];
  {
    const std::lock_guard lock(shared().mutex);
    if (own != nullptr && is_there(own)) return own;
  }
  return own = create({.context = context, .is_thread_default = true});
}

/// The tickets that new work of `stream` comes after, beside the stream's own order.
std::vector<Ticket> Streams::in_the_way(const Stream& stream) const {
  std::vector<Ticket> found;
  if (stream.options.kind == StreamKind::kNonBlocking) return found;
  const bool is_default = stream.options.kind == StreamKind::kLegacyDefault;
  for_each_busy(stream.options.context, [&](const StreamRef& other) {
    if (other.get() == &stream) return;
    const bool counts = is_default ? other->options.kind == StreamKind::kBlocking
                                   : other->options.kind == StreamKind::kLegacyDefault;
    if (counts) found.push_back(Ticket(other, other->submitted));
  });
  return found;
}

Ticket Streams::append(const StreamRef& stream, Work work, std::vector<Ticket> others) {
  for (Ticket& ticket : in_the_way(*stream)) others.push_back(std::move(ticket));
  const std::uint64_t position = ++stream->submitted;
  stream->items.push_back({position, std::move(work), std::move(others)});
  if (!std::exchange(stream->has_worker, true)) std::thread(serve, stream).detach();
  stream->changed.notify_all();
  return {stream, position};
}

/// Takes the stream's turn for the calling thread, if nothing is in the way.
bool Streams::begin_at_once(const StreamRef& stream, const std::vector<Ticket>& others) {
  const bool has_turn = is_idle(*stream) && in_the_way(*stream).empty() &&
                        std::ranges::all_of(others, [](const Ticket& ticket) {
                          return done(ticket.stream_, ticket.position_);
                        });
  if (has_turn) ++stream->submitted;
  return has_turn;
}

void Streams::finish_at_once(const StreamRef& stream) {
  const std::lock_guard lock(shared().mutex);
  ++stream->completed;
  stream->changed.notify_all();  // its worker, if work came in the meantime
  shared().done.notify_all();
}

Ticket Streams::submit(const StreamRef& stream, Work work, std::vector<Ticket> others) {
  const std::lock_guard lock(shared().mutex);
  return append(stream, std::move(work), std::move(others));
}

Ticket Streams::submit_short(const StreamRef& stream, Work work, std::vector<Ticket> others) {
  Lock lock(shared().mutex);
  if (!begin_at_once(stream, others)) return append(stream, std::move(work), std::move(others));
  Ticket ticket(stream, stream->submitted);
  lock.unlock();
  work();
  finish_at_once(stream);
  return ticket;
}

void Streams::run(const StreamRef& stream, const Work& work) {
  Lock lock(shared().mutex);
  if (!begin_at_once(stream, {})) {
    const Ticket ticket = append(stream, work, {});
    lock.unlock();
    return ticket.wait();
  }
  lock.unlock();
  work();
  finish_at_once(stream);
}

void Streams::follow(const StreamRef& stream, const Ticket& ticket) {
  if (ticket.stream_ == nullptr) return;
  const std::lock_guard lock(shared().mutex);
  std::uint64_t& position = stream->followed[ticket.stream_->id];
  position = std::max(position, ticket.position_);
}

bool Streams::is_after(const StreamRef& stream, const Ticket& ticket) const {
  if (ticket.stream_ == nullptr || ticket.stream_ == stream) return true;
  const std::lock_guard lock(shared().mutex);
  const StreamOptions &own = stream->options, &other = ticket.stream_->options;
  const bool is_in_step = own.context == other.context && own.kind != other.kind &&
                          own.kind != StreamKind::kNonBlocking && other.kind != StreamKind::kNonBlocking;
  const auto found = stream->followed.find(ticket.stream_->id);
  return is_in_step || (found != stream->followed.end() && found->second >= ticket.position_);
}

std::vector<Ticket> Streams::pending(const StreamRef& stream) const {
  const std::lock_guard lock(shared().mutex);
  std::vector<Ticket> found = in_the_way(*stream);
  if (!is_idle(*stream)) found.push_back(Ticket(stream, stream->submitted));
  return found;
}

std::vector<Ticket> Streams::pending_in(std::uint64_t context) const {
  const std::lock_guard lock(shared().mutex);
  std::vector<Ticket> found;
  for_each_busy(context,
                [&](const StreamRef& stream) { found.push_back(Ticket(stream, stream->submitted)); });
  return found;
}

}  // namespace gpumem::sim
