#include "client/allocator/streams.h"

#include <cstdint>

namespace gpumem::allocator {
namespace {

using Mark = StreamPort::Mark;
const auto kLegacyStream = reinterpret_cast<StreamHandle>(std::uintptr_t{1});
const auto kPerThreadStream = reinterpret_cast<StreamHandle>(std::uintptr_t{2});

}  // namespace

void Streams::drop_marks() {
  for (Entry& entry : entries_) drop_pending(entry);
}

bool Streams::is_per_thread(StreamHandle handle) { return handle == kPerThreadStream; }

Streams::Key Streams::key_of(StreamHandle handle, std::uint64_t thread) {
  if (handle == kLegacyStream) return {nullptr, 0};
  return {handle, is_per_thread(handle) ? thread : 0};
}

Result<StreamIndex> Streams::index_of(StreamHandle handle, std::uint64_t thread) {
  const Key key = key_of(handle, thread);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  if (retired_.empty() && entries_.size() == kMaxStreams) {
    return Error{Code::kResourceExhausted, "more than " + std::to_string(kMaxStreams - 1) +
                                               " streams are in use with one allocator; name those that are "
                                               "not used any more to release_stream"};
  }
  if (auto met = port_.meet(key.first); !met) return met.error();
  StreamIndex index = 0;
  if (retired_.empty()) {
    index = static_cast<StreamIndex>(entries_.size());
    entries_.emplace_back();
  } else {
    index = retired_.back();
    retired_.pop_back();
  }
  const std::uint64_t epoch =
      entries_[index].epoch;  // continues, so that spans of the number's previous stream are always older
  entries_[index] = Entry{
      .handle = key.first, .thread = key.second, .epoch = epoch, .pending_epoch = epoch, .reached = epoch};
  known_.emplace(key, index);
  return index;
}

bool Streams::can_mark(StreamIndex stream, std::uint64_t thread) const {
  const Entry& entry = entries_[stream];
  return !entry.forgotten && (!is_per_thread(entry.handle) || entry.thread == thread);
}

Result<void> Streams::mark(StreamIndex stream, std::uint64_t thread) {
  Entry& entry = entries_[stream];
  if (!can_mark(stream, thread)) return {};
  auto set = port_.mark(entry.handle);
  if (!set) return set.error();
  drop_pending(entry);
  entry.pending = *set;
  entry.pending_epoch = ++entry.epoch;
  return {};
}

std::optional<std::uint64_t> Streams::poll(StreamIndex stream, std::uint64_t thread) {
  Entry& entry = entries_[stream];
  if (entry.pending == Mark{}) (void)mark(stream, thread);
  if (entry.pending == Mark{} || !port_.reached(entry.pending)) return std::nullopt;
  drop_pending(entry);
  return entry.pending_epoch;
}

// A pending older mark stays the one that is polled. If newer ones replaced it, none would ever be reached.
bool Streams::order(StreamIndex later, StreamIndex stream, std::uint64_t epoch, std::uint64_t thread) {
  Entry& entry = entries_[stream];
  const StreamHandle handle = entries_[later].handle;
  if (entry.pending != Mark{} && entry.pending_epoch > epoch)
    return port_.order(handle, entry.pending).has_value();
  if (entry.pending == Mark{}) {
    (void)mark(stream, thread);
    return entry.pending != Mark{} && port_.order(handle, entry.pending).has_value();
  }
  if (!can_mark(stream, thread)) return false;
  const auto newer = port_.mark(entry.handle);
  if (!newer) return false;
  const bool ordered = port_.order(handle, *newer).has_value();
  port_.drop(*newer);
  return ordered;
}

std::optional<Streams::Awaited> Streams::await(StreamIndex stream, std::uint64_t thread) {
  Entry& entry = entries_[stream];
  (void)mark(stream, thread);
  if (entry.pending == Mark{}) return std::nullopt;
  Awaited awaited{stream, entry.pending_epoch, entry.pending};
  entry.pending = Mark{};
  return awaited;
}

std::optional<StreamIndex> Streams::find(StreamHandle handle, std::uint64_t thread) const {
  const auto found = known_.find(key_of(handle, thread));
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

Result<void> Streams::forget(StreamIndex stream, std::uint64_t thread) {
  Entry& entry = entries_[stream];
  if (auto marked = mark(stream, thread); !marked) return marked;
  if (!is_per_thread(entry.handle)) port_.forget(entry.handle);
  entry.forgotten = true;
  known_.erase({entry.handle, entry.thread});
  forgotten_.push_back(stream);
  return {};
}

void Streams::retire(StreamIndex stream) {
  drop_pending(entries_[stream]);
  std::erase(forgotten_, stream);
  retired_.push_back(stream);
}

void Streams::drop_pending(Entry& entry) {
  if (entry.pending == Mark{}) return;
  port_.drop(entry.pending);
  entry.pending = Mark{};
}

}  // namespace gpumem::allocator
