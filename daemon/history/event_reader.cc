#include "daemon/history/event_reader.h"

#include <google/protobuf/util/json_util.h>

#include <utility>

#include "base/text/time_format.h"
#include "base/thread_guards.h"

namespace gpumem::history {
namespace {

constexpr std::chrono::seconds kPauseOfCalls{1};  // between two calls
constexpr std::size_t kMostUnread = 65'536;

std::int64_t micros_of(const std::string& time) {
  const auto known = parse_rfc3339(time);
  if (!known) return 0;
  return std::chrono::duration_cast<std::chrono::microseconds>(known->time_since_epoch()).count();
}

std::string text_of(std::int64_t micros) {
  const std::chrono::system_clock::time_point time{std::chrono::microseconds(micros)};
  return to_rfc3339(time, Precision::kMicroseconds);
}

Event event_of(const v1::Event& event, std::int64_t micros) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  Event one{.time = micros, .tenant = event.tenant(), .body = {}};
  if (event.has_uid()) one.uid = event.uid();
  static_cast<void>(google::protobuf::util::MessageToJsonString(event, &one.body, options));
  return one;
}

Closed closed_of(const v1::Event& event, std::int64_t time) {
  constexpr double kMillis = 1000;
  const v1::Closing& closing = event.closing();
  Closed closed{.time = time,
                .began = time - static_cast<std::int64_t>(closing.lasted_ms() / 1000),
                .tenant = event.tenant(),
                .job = event.job(),
                .session = event.session(),
                .pid = event.pid(),
                .name = closing.name(),
                .charged = closing.charged(),
                .peak = closing.peak(),
                .waited = static_cast<double>(event.waited_ms()) / kMillis,
                .denied = closing.denied(),
                .words = event.words()};
  if (event.has_uid()) closed.uid = event.uid();
  return closed;
}

}  // namespace

void EventReader::start(const EventPosition& position) {
  if (thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    read_ = {};
    read_.position = position;
    stopping_ = false;
  }
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { work(); });
}

void EventReader::stop() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  changed_.notify_all();
  thread_.join();
}

void EventReader::take(Sample& sample) {
  const MutexLock lock(mutex_);
  sample.counts = std::exchange(read_.counts, {});
  sample.ends = std::exchange(read_.ends, {});
  sample.events = std::exchange(read_.events, {});
  sample.closed = std::exchange(read_.closed, {});
  sample.position = read_.position;
  changed_.notify_all();
}

void EventReader::work() {
  for (;;) {
    follow();
    const auto again = std::chrono::steady_clock::now() + kPauseOfCalls;
    const MutexLock lock(mutex_);
    while (!stopping_ && std::chrono::steady_clock::now() < again) changed_.wait_until(mutex_, again);
    if (stopping_) return;
  }
}

// One call, until it ends.
void EventReader::follow() {
  grpc::ClientContext context;
  v1::WatchEventsRequest request;
  request.set_follow(true);
  EventPosition seen, skip;
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    call_ = &context;
    skip = read_.position;
  }
  request.set_since(text_of(skip.time));
  const auto stream = stub_.WatchEvents(&context, request);
  v1::Event event;
  while (stream->Read(&event)) note(event, seen, skip);
  static_cast<void>(stream->Finish());
  const MutexLock lock(mutex_);
  call_ = nullptr;
}

// Several events may have one time. A stream begins with those of the position's time; what it tells after
// them is new, even if its time is earlier: the clock was set back.
void EventReader::note(const v1::Event& event, EventPosition& seen, const EventPosition& skip) {
  const std::int64_t time = micros_of(event.time());
  seen.count = time == seen.time ? seen.count + 1 : 1;
  seen.time = time;
  if (time == skip.time && seen.count <= skip.count) return;
  Event kept = event_of(event, time);
  const MutexLock lock(mutex_);
  while (!stopping_ && read_.events.size() >= kMostUnread) changed_.wait(mutex_);
  read_.position = seen;
  read_.events.push_back(std::move(kept));
  if (event.has_closing()) read_.closed.push_back(closed_of(event, time / kMicros));
  const bool is_denied = event.kind() == "denied";
  // A user's own `gpumem end` names no device, and ends nobody by itself.
  const bool is_ending = event.kind() == "terminating" && !event.device().empty();
  if (!is_denied && !is_ending) return;
  Counts& counts = read_.counts[{time / kMicros, event.tenant(), event.device()}];
  ++(is_denied ? counts.denied : counts.ended);
  if (is_denied) return;
  read_.ends.push_back(
      {time / kMicros, {event.tenant(), event.device()}, event.session(), event.pid(), event.words()});
}

}  // namespace gpumem::history
