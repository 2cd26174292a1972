#include "client/allocator/streams.h"

#include "client/allocator/thread_caches.h"

namespace gpumem::allocator {

Result<Streams::Key> Streams::key_of(StreamHandle handle) const {
  const auto id = port_.meet(handle);
  if (!id) return id.error();
  return Key{handle, *id, is_per_thread(handle) ? ThreadTable::thread_number() : 0};
}

Result<StreamIndex> Streams::index_of(StreamHandle handle) {
  if (is_legacy(handle)) {
    if (legacy_ == kNoStream) {
      if (auto added = add(Key{}); !added) return added;
      entries_[legacy_].unmet = true;
    }
    Entry& legacy = entries_[legacy_];
    if (legacy.unmet && !ThreadTable::is_ending()) {
      if (auto met = meet(legacy); !met) return met.error();
    }
    return legacy_;
  }
  const auto key = key_of(handle);
  if (!key) return key.error();
  if (const auto found = known_.find(*key); found != known_.end()) {
    Entry& entry = entries_[found->second];
    if (entry.unmarked && !is_marked_late(found->second)) (void)mark(entry, true);
    return found->second;
  }
  end_namesakes(handle, std::get<StreamPort::Id>(*key));
  if (retired_.empty() && entries_.size() >= next_sweep_) {
    make_place_();
    next_sweep_ = std::min(std::max(kFirstSweep, 2 * (entries_.size() - retired_.size())), kMaxStreams);
  }
  return add(*key);
}

Result<StreamIndex> Streams::add(const Key& key) {
  if (retired_.empty() && entries_.size() == kMaxStreams) {
    return Error{Code::kResourceExhausted, "more than " + std::to_string(kMaxStreams - 1) +
                                               " streams have blocks in use or work that is not done"};
  }
  if (retired_.empty()) {
    retired_.push_back(static_cast<StreamIndex>(entries_.size()));
    entries_.emplace_back();
  }
  const StreamIndex index = retired_.back();
  retired_.pop_back();
  const std::uint64_t epoch =
      entries_[index].epoch;  // continues, so that spans of the number's previous stream are always older
  entries_[index] = Entry{};
  entries_[index].handle = std::get<StreamHandle>(key);
  entries_[index].key = key;
  entries_[index].epoch = entries_[index].reached = epoch;
  known_.emplace(key, index);
  if (is_legacy(std::get<StreamHandle>(key))) legacy_ = index;
  return index;
}

Result<void> Streams::meet(Entry& entry) {
  const auto id = port_.meet(entry.handle);
  entry.unmet = !id;
  return id ? Result<void>() : id.error();
}

Result<void> Streams::mark(Entry& entry, bool is_met) {
  entry.unmarked = true;
  if (entry.unmet) {
    if (auto met = meet(entry); !met) return met;
  }
  if (is_met && renew(entry)) return {};
  auto set = is_met ? port_.mark_met(entry.handle) : port_.mark(entry.handle);
  if (!set) return set.error();
  entry.unmarked = false;
  add_mark(entry, {share(*set)});
  return {};
}

Streams::SharedMark Streams::share(StreamPort::Mark mark) {
  struct Owned {
    StreamPort& port;
    const StreamPort::Mark mark;
    Owned(StreamPort& of, StreamPort::Mark set) : port(of), mark(set) {}
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    ~Owned() { port.drop(mark); }
  };
  const auto owned = std::make_shared<const Owned>(port_, mark);
  return {owned, &owned->mark};
}

// Most frees come this way: no mark is made or dropped. As with the marks of caches, the latest one stays
// valid if the other cannot be set.
bool Streams::renew(Entry& entry) {
  if (!entry.spare || entry.marks.size() < 2 || !entry.marks.back().is_own()) return false;
  if (!port_.renew(*entry.spare, entry.handle)) return false;
  entry.unmarked = false;
  entry.spare.swap(entry.marks.back().marks.front());
  entry.marks.back().epoch = ++entry.epoch;
  return true;
}

// The handle of a default stream means streams of several contexts, which their marks are of.
void Streams::add_mark(Entry& entry, SharedMarks marks) {
  if (entry.marks.size() == 2) {
    SetMark& latest = entry.marks.back();
    if (id_of(entry) != StreamPort::Id{} && latest.is_own()) entry.spare = std::move(latest.marks.front());
    entry.marks.pop_back();
  }
  entry.marks.push_back({std::move(marks), ++entry.epoch});
}

// ---- Marks of threads' caches ----

// One mark takes the place of many that were handed over, each thread's before it asks for another one. So
// they are never more than there are caches of the stream.
Result<StreamPort::Mark> Streams::set_apart(StreamIndex stream) {
  Entry& entry = entries_[stream];
  if (!entry.marks.empty() && entry.marks.back().marks.size() > 1) {
    if (auto marked = mark(entry, true); !marked) return marked.error();
  }
  return port_.mark_met(entry.handle);
}

// Where something is free that no mark covers, the next call that names the stream sets one for all of it.
void Streams::hand_over(StreamIndex stream, StreamPort::Mark mark) {
  Entry& entry = entries_[stream];
  SharedMark shared = share(mark);
  if (entry.unmarked) return;
  SharedMarks all = entry.marks.empty() ? SharedMarks() : entry.marks.back().marks;
  all.push_back(std::move(shared));
  add_mark(entry, std::move(all));
}

StreamIndex Streams::known(StreamHandle handle) const {
  if (is_legacy(handle)) return legacy_;
  const auto first = known_.lower_bound(Key{handle, {}, 0});
  if (first == known_.end() || std::get<StreamHandle>(first->first) != handle) return kNoStream;
  const auto key = key_of(handle);
  const auto found = key ? known_.find(*key) : known_.end();
  return found == known_.end() ? kNoStream : found->second;
}

StreamPort::Id Streams::cached_id(StreamIndex stream) const { return id_of(entries_[stream]); }

StreamPort::Id Streams::id_of(const Entry& entry) {
  return entry.key && !is_default(entry.handle) ? std::get<StreamPort::Id>(*entry.key) : StreamPort::Id{};
}

// A mark ends the epoch.
std::uint64_t Streams::last_free(StreamIndex stream) const {
  return entries_[stream].unmarked ? entries_[stream].epoch : entries_[stream].epoch - 1;
}

void Streams::freed(StreamIndex stream) {
  entries_[stream].unmarked = true;
  if (!is_marked_late(stream)) (void)mark(entries_[stream], true);
}

void Streams::note_reached(StreamIndex stream, std::uint64_t epoch) {
  Entry& entry = entries_[stream];
  entry.reached = std::max(entry.reached, epoch);
  std::erase_if(entry.marks, [epoch](const SetMark& set) { return set.epoch <= epoch; });
}

// Of a stream that has been forgotten, the last mark covers all work. A thread that is about to end calls no
// driver, so the next call that names the stream sets the mark.
std::uint64_t Streams::freed_elsewhere(StreamIndex stream) {
  if (!entries_[stream].key) return last_free(stream);
  const std::uint64_t epoch = entries_[stream].epoch;
  entries_[stream].unmarked = true;
  if (!is_marked_late(stream) && !ThreadTable::is_ending()) (void)mark(entries_[stream]);
  return epoch;
}

std::optional<std::uint64_t> Streams::poll(StreamIndex stream) {
  Entry& entry = entries_[stream];
  if (entry.marks.empty() && is_mark_due(stream)) (void)mark(entry);
  std::optional<std::uint64_t> reached;
  while (!entry.marks.empty()) {
    const StreamPort::Progress progress = ask(entry.marks.front());
    if (progress == StreamPort::Progress::kPending) break;
    if (progress == StreamPort::Progress::kReached) reached = entry.marks.front().epoch;
    if (progress == StreamPort::Progress::kLost) entry.unmarked = true;
    entry.marks.erase(entry.marks.begin());
  }
  return reached;
}

StreamPort::Progress Streams::ask(SetMark& set) {
  set.is_told = true;
  while (!set.marks.empty()) {
    const StreamPort::Progress progress = port_.ask(*set.marks.back());
    if (progress != StreamPort::Progress::kReached) return progress;
    set.marks.pop_back();
  }
  return StreamPort::Progress::kReached;
}

std::vector<StreamIndex> Streams::pending() const {
  std::vector<StreamIndex> found;
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    const bool marks_later = entries_[i].unmarked && is_marked_late(static_cast<StreamIndex>(i));
    if (marks_later || !entries_[i].marks.empty()) found.push_back(static_cast<StreamIndex>(i));
  }
  return found;
}

bool Streams::order(StreamIndex later, StreamIndex stream, std::uint64_t epoch) {
  Entry& entry = entries_[stream];
  const bool is_covered = !entry.marks.empty() && entry.marks.back().epoch > epoch;
  if (!is_covered && is_marked_late(stream)) (void)mark(entry);
  const auto covers = [epoch](const SetMark& set) { return set.epoch > epoch; };
  const auto set = std::ranges::find_if(entry.marks, covers);
  if (set == entry.marks.end()) return false;
  set->is_told = true;
  return std::ranges::all_of(set->marks, [&](const SharedMark& one) {
    return port_.order(entries_[later].handle, *one).has_value();
  });
}

std::vector<Streams::Awaited> Streams::awaited() {
  std::vector<Awaited> all;
  for (const StreamIndex stream : pending()) {
    Entry& entry = entries_[stream];
    if (is_mark_due(stream)) (void)mark(entry);
    if (entry.marks.empty()) continue;
    entry.marks.back().is_told = true;
    all.push_back({stream, entry.marks.back().epoch, entry.marks.back().marks});
  }
  return all;
}

Result<void> Streams::forget(StreamHandle handle) {
  if (is_legacy(handle)) return {};
  const StreamIndex stream = known(handle);
  end_namesakes(handle, stream == kNoStream ? StreamPort::Id{} : cached_id(stream));
  if (stream == kNoStream) return {};
  Entry& entry = entries_[stream];
  Result<void> marked;
  if (entry.unmarked || entry.holders != 0) marked = mark(entry, true);  // a block may still depend on it
  if (marked || is_marked_late(stream)) remove_key(entry);
  return marked;
}

// Without an announcement, a stream that is marked late ends only with its context, and so does its work. A
// mark of the stream that has the handle now is behind that.
void Streams::end_namesakes(StreamHandle handle, StreamPort::Id id) {
  auto next = known_.lower_bound(Key{handle, {}, 0});
  while (next != known_.end() && std::get<StreamHandle>(next->first) == handle) {
    const auto& [key, stream] = *next++;
    if (std::get<StreamPort::Id>(key) == id || !is_marked_late(stream)) continue;
    Entry& entry = entries_[stream];
    if (entry.unmarked || entry.holders != 0) (void)mark(entry);
    remove_key(entry);
  }
}

bool Streams::is_idle(StreamIndex stream) const {
  const Entry& entry = entries_[stream];
  return !entry.retired && stream != legacy_ && entry.holders == 0 && entry.marks.empty() && !entry.unmarked;
}

void Streams::retire_idle() {
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    const auto stream = static_cast<StreamIndex>(i);
    if (!is_idle(stream)) continue;
    remove_key(entries_[stream]);
    entries_[stream].retired = true;
    retired_.push_back(stream);
  }
}

void Streams::remove_key(Entry& entry) {
  if (!entry.key) return;
  port_.forget(std::get<StreamHandle>(*entry.key), std::get<StreamPort::Id>(*entry.key));
  known_.erase(*entry.key);
  entry.key.reset();
  entry.spare.reset();
}

}  // namespace gpumem::allocator
