#include "tests/support/allocator/fake_streams.h"

#include <algorithm>

#include "tests/support/allocator/broken_rule.h"

namespace gpumem::test {
namespace {

// A stream's list of barriers is searched for finished work when it is this long.
constexpr std::size_t kManyBehind = 32;

}  // namespace

/// One call of the engine's, of those that its lock keeps apart.
class Exclusive {
 public:
  Exclusive(FakeStreams& streams, const char* what)
      : streams_(streams), lock_(streams.mutex_, std::defer_lock) {
    if (streams_.inside_.fetch_add(1) != 0)
      broken_rule(std::string(what) + " while another call is under way");
    lock_.lock();
  }
  ~Exclusive() {
    lock_.unlock();
    streams_.inside_.fetch_sub(1);
  }

 private:
  FakeStreams& streams_;
  std::unique_lock<std::mutex> lock_;
};

std::uint64_t FakeStreams::key(StreamHandle stream) {
  const auto value = reinterpret_cast<std::uintptr_t>(stream);
  const StreamHandle handle = value == 1 ? nullptr : stream;
  auto& key = keys_[{handle, value == 2 ? std::this_thread::get_id() : std::thread::id{}}];
  if (key == 0) {
    key = next_key_++;
    streams_[key].handle = handle;
    if (is_default(streams_[key])) defaults_.push_back(key);
  }
  return key;
}

FakeStreams::Stream& FakeStreams::known(StreamHandle stream, const char* what) {
  Stream& found = streams_.at(key(stream));
  if (!found.met) broken_rule(std::string(what) + " of a stream that was not met");
  return found;
}

const FakeStreams::Marked& FakeStreams::live(Mark mark, const char* what) const {
  const auto found = marks_.find(static_cast<std::uint64_t>(mark));
  if (found == marks_.end()) {
    broken_rule(std::string(what) + " of mark " + std::to_string(static_cast<std::uint64_t>(mark)) +
                ", which was not set or was dropped");
  }
  return found->second;
}

FakeStreams::Moment FakeStreams::give(StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  return add_piece(key(stream));
}

bool FakeStreams::is_default(const Stream& stream) {
  return reinterpret_cast<std::uintptr_t>(stream.handle) <= 2;
}

bool FakeStreams::are_ordered(const Stream& a, const Stream& b) {
  return is_default(a) && is_default(b) && (a.handle == nullptr) != (b.handle == nullptr);
}

FakeStreams::Moment FakeStreams::add_piece(std::uint64_t of) {
  Stream& own = streams_.at(of);
  for (const std::uint64_t number : defaults_) {
    const Stream& other = streams_.at(number);
    if (are_ordered(own, other)) put_behind(own, {number, other.given}, other.behind);
  }
  const Moment moment{of, ++streams_.at(of).given};
  ++pieces_;
  if (lag_ == 0) return moment;
  pending_.push_back({moment, pieces_});
  while (pending_.front().at + lag_ <= pieces_) {
    run(pending_.front().moment);
    pending_.pop_front();
  }
  return moment;
}

FakeStreams::Moment FakeStreams::now(StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t of = key(stream);
  return {of, streams_.at(of).given};
}

bool FakeStreams::knows(std::uint64_t of, std::uint64_t number) const {
  const auto known = known_.find(of);
  return known != known_.end() && known->second >= number;
}

void FakeStreams::put_behind(Stream& stream, Moment moment, const Clock& behind) {
  const auto raise = [&](std::uint64_t of, std::uint64_t number) {
    if (knows(of, number)) return;
    auto& mine = stream.behind[of];
    mine = std::max(mine, number);
  };
  if (stream.behind.size() > kManyBehind) {
    std::erase_if(stream.behind, [this](const auto& one) { return knows(one.first, one.second); });
  }
  for (const auto& [of, number] : behind) raise(of, number);
  raise(moment.stream, moment.number);
  if (streams_.at(moment.stream).done < moment.number) stream.barriers.push_back({stream.given, moment});
}

void FakeStreams::put_behind(StreamHandle stream, Moment moment) {
  const std::lock_guard lock(mutex_);
  put_behind(streams_.at(key(stream)), moment, streams_.at(moment.stream).behind);
}

void FakeStreams::run(Moment moment) {
  Stream& stream = streams_.at(moment.stream);
  if (stream.done >= moment.number) return;
  // A barrier was marked before the work behind it was given, so there are no cycles.
  while (!stream.barriers.empty() && stream.barriers.front().after < moment.number) {
    const Moment before = stream.barriers.front().moment;
    stream.barriers.pop_front();
    if (before.stream != moment.stream) run(before);
  }
  stream.done = std::max(stream.done, moment.number);
}

void FakeStreams::finish(StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t of = key(stream);
  run({of, streams_.at(of).given});
}

void FakeStreams::finish_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& [of, stream] : streams_) run({of, stream.given});
  pending_.clear();
}

void FakeStreams::set_lag(std::uint64_t pieces) {
  const std::lock_guard lock(mutex_);
  lag_ = pieces;
}

void FakeStreams::set_taking(bool taking) {
  const std::lock_guard lock(mutex_);
  taking_ = taking;
}

void FakeStreams::set_capturing(bool capturing) {
  const std::lock_guard lock(mutex_);
  capturing_ = capturing;
}

bool FakeStreams::is_behind(StreamHandle stream, Moment moment) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t of = key(stream);
  if (of == moment.stream || moment.number == 0) return true;
  const auto covers = [&](const Clock& clock) {
    const auto found = clock.find(moment.stream);
    return found != clock.end() && found->second >= moment.number;
  };
  const Stream& own = streams_.at(of);
  if (covers(known_) || covers(own.behind) || are_ordered(own, streams_.at(moment.stream))) return true;
  return std::ranges::any_of(defaults_, [&](std::uint64_t number) {
    const Stream& other = streams_.at(number);
    return are_ordered(own, other) && covers(other.behind);
  });
}

bool FakeStreams::is_known_reached(Moment moment) const {
  const std::lock_guard lock(mutex_);
  return moment.number == 0 || knows(moment.stream, moment.number);
}

std::string FakeStreams::name(std::uint64_t stream) const {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  const auto handle = found == streams_.end() ? 0 : reinterpret_cast<std::uintptr_t>(found->second.handle);
  return std::to_string(stream) + " (handle " + std::to_string(handle) + ")";
}

std::uint64_t FakeStreams::calls(Call call) const {
  const std::lock_guard lock(mutex_);
  return calls_[static_cast<std::size_t>(call)];
}

std::size_t FakeStreams::marks() const {
  const std::lock_guard lock(mutex_);
  return marks_.size();
}

std::size_t FakeStreams::most_marks() const {
  const std::lock_guard lock(mutex_);
  return most_marks_;
}

void FakeStreams::fail(Call call, std::uint64_t nth, Error error, std::uint64_t times) {
  const std::lock_guard lock(mutex_);
  failures_[static_cast<std::size_t>(call)] = {nth, times, std::move(error)};
}

bool FakeStreams::heal() {
  const std::lock_guard lock(mutex_);
  const bool all = std::ranges::all_of(failures_, [](const auto& one) { return one.nth == 0; });
  failures_ = {};
  return all;
}

void FakeStreams::on_wait(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  on_wait_ = std::move(call);
}

std::optional<Error> FakeStreams::counted(Call call) {
  ++calls_[static_cast<std::size_t>(call)];
  Failure& failure = failures_[static_cast<std::size_t>(call)];
  if (failure.nth == 0 || --failure.nth > 0) return std::nullopt;
  if (--failure.times > 0) failure.nth = 1;
  return failure.error;
}

Result<allocator::StreamPort::Id> FakeStreams::meet(StreamHandle stream) {
  const Exclusive inside(*this, "meet");
  if (auto error = counted(Call::kMeet)) return std::move(*error);
  const std::uint64_t of = key(stream);
  streams_.at(of).met = true;
  return Id{of};
}

Result<allocator::StreamPort::Mark> FakeStreams::mark(StreamHandle stream) {
  const Exclusive inside(*this, "mark");
  known(stream, "mark");
  if (auto error = counted(Call::kMark)) return std::move(*error);
  marks_.emplace(next_mark_, set_behind(stream));
  most_marks_ = std::max(most_marks_, marks_.size());
  return Mark{next_mark_++};
}

FakeStreams::Marked FakeStreams::set_behind(StreamHandle stream) {
  const Stream& marked = streams_.at(key(stream));
  const bool idle = marked.done == marked.given && marked.barriers.empty();
  const Moment moment = add_piece(key(stream));
  if (idle) run(moment);
  return {.moment = moment, .behind = marked.behind, .taken = taking_};
}

std::optional<allocator::StreamPort::Id> FakeStreams::id_of(StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  if (counted(Call::kIdOf)) return std::nullopt;
  return Id{key(stream)};
}

bool FakeStreams::renew(Mark mark, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  const Marked& before = live(mark, "renew");
  if (before.is_known) broken_rule("a mark is renewed that others were told of");
  if (before.moment.stream != key(stream)) broken_rule("a mark is renewed in another stream");
  if (counted(Call::kRenew)) return false;
  marks_.at(static_cast<std::uint64_t>(mark)) = set_behind(stream);
  return true;
}

void FakeStreams::learn(Moment moment, const Clock& behind) {
  for (const auto& [of, number] : behind) known_[of] = std::max(known_[of], number);
  auto& number = known_[moment.stream];
  number = std::max(number, moment.number);
}

allocator::StreamPort::Progress FakeStreams::ask(Mark mark) {
  const Exclusive inside(*this, "ask");
  const Marked& marked = live(mark, "ask");
  marked.is_known = true;
  if (capturing_) return Progress::kPending;
  if (marked.taken) return Progress::kLost;
  if (streams_.at(marked.moment.stream).done < marked.moment.number) return Progress::kPending;
  learn(marked.moment, marked.behind);
  return Progress::kReached;
}

Result<void> FakeStreams::order(StreamHandle stream, Mark mark) {
  const Exclusive inside(*this, "order");
  Stream& later = known(stream, "order");
  const Marked& marked = live(mark, "order");
  marked.is_known = true;
  if (auto error = counted(Call::kOrder)) return std::move(*error);
  if (marked.taken) return Error{Code::kFailedPrecondition, "a capture has taken the mark"};
  put_behind(later, marked.moment, marked.behind);
  return {};
}

Result<void> FakeStreams::wait(Mark mark) {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    call = on_wait_;
  }
  if (call) call();
  const std::lock_guard lock(mutex_);
  const Marked& known = live(mark, "wait");
  known.is_known = true;
  const Marked marked = known;
  if (auto error = counted(Call::kWait)) return std::move(*error);
  if (marked.taken) return Error{Code::kFailedPrecondition, "a capture has taken the mark"};
  run(marked.moment);
  learn(marked.moment, marked.behind);
  return {};
}

void FakeStreams::drop(Mark mark) {
  const Exclusive inside(*this, "drop");
  live(mark, "drop");
  marks_.erase(static_cast<std::uint64_t>(mark));
}

Result<void> FakeStreams::wait_for_contexts() {
  const std::lock_guard lock(mutex_);
  if (auto error = counted(Call::kWaitForContexts)) return std::move(*error);
  for (const auto& [of, stream] : streams_) {
    run({of, stream.given});
    learn({of, stream.given}, {});
  }
  pending_.clear();
  return {};
}

void FakeStreams::end(StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  keys_.erase({stream, {}});
}

namespace {

class BorrowedStreams final : public allocator::StreamPort {
 public:
  explicit BorrowedStreams(FakeStreams& of) : of_(of) {}
  bool announces_ends() const override { return of_.announces_ends(); }
  Result<Id> meet(StreamHandle stream) override { return of_.meet(stream); }
  Result<Mark> mark(StreamHandle stream) override { return of_.mark(stream); }
  std::optional<Id> id_of(StreamHandle stream) override { return of_.id_of(stream); }
  bool renew(Mark mark, StreamHandle stream) override { return of_.renew(mark, stream); }
  Progress ask(Mark mark) override { return of_.ask(mark); }
  Result<void> order(StreamHandle stream, Mark mark) override { return of_.order(stream, mark); }
  Result<void> wait(Mark mark) override { return of_.wait(mark); }
  void drop(Mark mark) override { of_.drop(mark); }
  void forget(StreamHandle stream, Id id) override { of_.forget(stream, id); }
  Result<void> wait_for_contexts() override { return of_.wait_for_contexts(); }

 private:
  FakeStreams& of_;
};

}  // namespace

std::unique_ptr<allocator::StreamPort> borrow(FakeStreams& streams) {
  return std::make_unique<BorrowedStreams>(streams);
}

}  // namespace gpumem::test
