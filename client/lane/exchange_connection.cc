#include <poll.h>
#include <algorithm>
#include <utility>

#include "base/crash_point.h"
#include "client/lane/exchange.h"
#include "client/process/status.h"

// The connection of an exchange: frames that are read from it, and the calls that they answer; its end; the
// connection to the next broker.

namespace gpumem::client {
namespace {

/// Whether more frames of the same answer follow. A broken frame is the last.
bool has_more(const lane::Incoming& frame) {
  std::uint64_t missing = 0;
  constexpr std::size_t kAt = offsetof(lane::Granted, missing);
  if (frame.header.kind != lane::Kind::kGranted || frame.body.size() < kAt + sizeof missing) return false;
  std::memcpy(&missing, frame.body.data() + kAt, sizeof missing);
  return missing != 0;
}

Error descriptors_closed() {
  return {Code::kFailedPrecondition,
          "this process has closed the library's descriptors (close_range(), a loop over close(), daemon()); "
          "the session is lost; memory that is mapped stays usable; open a new session to allocate more"};
}

}  // namespace

bool Exchange::read(Clock::time_point until) {
  LanePacket packet;
  auto received = LaneSocket::Received::kNothing;
  const std::uint64_t connection = connection_;
  reading_ = true;
  mutex_.unlock();
  if (socket_.wait(POLLIN, until)) received = socket_.receive(packet);
  mutex_.lock();
  reading_ = false;
  if (received == LaneSocket::Received::kPacket) dispatch(packet);
  if (received == LaneSocket::Received::kEnd && connection == connection_) close();
  return received != LaneSocket::Received::kNothing;
}

void Exchange::read_what_is_there() {
  while (may_read() && !closed_) {
    LanePacket packet;
    const LaneSocket::Received received = socket_.receive(packet);
    if (received == LaneSocket::Received::kNothing) return;
    if (received == LaneSocket::Received::kEnd) return close();
    dispatch(packet);
  }
}

void Exchange::dispatch(LanePacket& packet) {
  heard_ = Clock::now();
  silent_ = false;
  const auto frame = lane::parse(packet.view());
  if (!frame) return fail_all(protocol_error(frame.error().message));
  holdings_.note_received(*frame);
  if (Call* call = find(frame->header.request)) {
    dispatch_to(*call, *frame, packet);
  } else {
    give_back(*frame);
  }
  send_queued();
}

void Exchange::dispatch_to(Call& call, const lane::Incoming& frame, LanePacket& packet) {
  if (frame.header.kind == lane::Kind::kWaiting) {
    const auto waiting = lane::body_of<lane::Waiting>(frame);
    if (!waiting) return fail(call, protocol_error(waiting.error().message));
    if (call.of_ != Call::Of::kGrowth) return fail(call, protocol_error("only growths and maps wait"));
    call.queued_ = true;
    call.deadline_ = heard_ + kLongestWait;  // the broker answers, unless it falls silent
    return;
  }
  call.partly_ = has_more(frame);
  if (call.partly_) {
    undrained_ = &call;
  } else {
    unlink(call);
  }
  if (frame.header.kind != lane::Kind::kFailed) note_told(call.frame_.bytes());
  call.packet_.take(packet);
  call.arrived_ = true;
  call.changed_.notify_one();
}

void Exchange::give_back(const lane::Incoming& frame) {
  const auto release = [this](std::uint64_t import) GPUMEM_REQUIRES(mutex_) {
    queue(lane::Outgoing(lane::ReleaseImport{import}, next_request()));
  };
  if (const auto imported = lane::body_of<lane::Imported>(frame)) return release(imported->import);
  if (const auto mapped = lane::body_of<lane::RegionMapped>(frame)) return release(mapped->import);
  if (const auto reserved = lane::body_of<lane::NameReserved>(frame))
    return queue(lane::Outgoing(lane::ReleaseReservation{reserved->reservation}, next_request()));
  if (frame.header.kind != lane::Kind::kGranted) return;
  const auto granted = lane::body_of<lane::Granted>(frame);
  if (!granted) return;
  static_assert(lane::kMostLeases <= lane::kMostReturned);
  const auto* const end = granted->leases.data() + granted->count;
  for (const auto* lease = granted->leases.data(); lease != end;) {
    lane::Return request{};
    request.slice = lease->slice;
    for (; lease != end && lease->slice == request.slice; ++lease)
      request.leases[request.count++] = lease->lease;
    queue(lane::Outgoing(request, next_request()));
  }
}

void Exchange::fail(Call& call, Error error) {
  unlink(call);
  call.failed_ = std::move(error);
  call.changed_.notify_one();
}

void Exchange::fail_all(const Error& error) {
  while (calls_ != nullptr) fail(*calls_, error);
}

// ---- The end, and the next broker ----

bool Exchange::is_closed() {
  const MutexLock lock(mutex_);
  read_what_is_there();
  return closed_ && !may_resume();
}

void Exchange::abandon() {
  const MutexLock lock(mutex_);
  if (!lost_) lost_ = descriptors_closed();
  socket_.hang_up();
  close();
}

void Exchange::close() {
  closed_ = true;
  if (!lost_ && !socket_.is_intact()) lost_ = descriptors_closed();
  if (!may_resume()) queue_.clear();
  for (Call* call = calls_; call != nullptr; call = call->next_) call->changed_.notify_one();
}

void Exchange::set_resumption(Resumption resumption) {
  const MutexLock lock(mutex_);
  resumption_ = std::move(resumption);
}

bool Exchange::was_resumed() {
  const MutexLock lock(mutex_);
  return connection_ != 0;
}

bool Exchange::mend(Clock::time_point deadline) {
  const MutexLock lock(mutex_);
  if (resumption_.attempt == nullptr) return false;
  read_what_is_there();
  if (!closed_) {  // its end may come a moment later than that of what else the broker had open
    mutex_.unlock();
    static_cast<void>(socket_.wait(POLLRDHUP, deadline));
    mutex_.lock();
    read_what_is_there();
  }
  return wait_until_open(deadline) || may_resume();
}

// If other calls have waited for a broker in vain, a call that waits for nothing else fails at once.
Result<void> Exchange::wait_for_broker(const Clock::time_point& deadline, const Call* call) {
  if (!closed_) return {};
  const Clock::time_point now = Clock::now();
  const bool is_patient = !absent_ || deadline > now + timeout_;
  if (wait_until_open(is_patient ? deadline : now, call)) return {};
  const bool has_hope = !is_patient && may_resume() && resumption_.has_reached_one();
  if (has_hope && wait_until_open(deadline, call)) return {};
  if (call != nullptr && call->is_interrupted()) return call->signals_->error();
  absent_ = true;
  return gone();
}

bool Exchange::wait_until_open(const Clock::time_point& deadline, const Call* call) {
  while (closed_ && may_resume() && !(call != nullptr && call->is_interrupted())) {
    const Clock::time_point now = Clock::now();
    if (resuming_)
      reopened_.wait_until(mutex_, std::min(deadline, now + kLongestPause));
    else if (now < std::min(deadline, next_attempt_))
      reopened_.wait_until(mutex_, std::min(deadline, next_attempt_));
    else
      resume(std::min(deadline, Clock::now() + kLongestPause));
    if (Clock::now() >= deadline) break;
  }
  return !closed_;
}

// One attempt. Without a broker it returns at once, and the next one, of whichever thread, is made after a
// pause.
void Exchange::resume(Clock::time_point deadline) {
  const auto attempt = resumption_.attempt;
  resuming_ = true;
  mutex_.unlock();
  const auto holdings = [this](std::uint64_t session) {
    const MutexLock lock(mutex_);
    return holdings_.frames(session);
  };
  auto resumed = attempt(holdings, deadline);
  mutex_.lock();
  resuming_ = false;
  obstacle_ = resumption_.obstacle();
  if (!resumed) {
    lost_ = std::move(resumed).error();
    close();
  } else if (*resumed) {
    go_on(std::move(**resumed));
  }
  if (closed_ && !lost_) {
    pause_ = std::min(2 * pause_, kLongestPause);
    next_attempt_ = Clock::now() + pause_;
  }
  reopened_.notify_all();
}

void Exchange::go_on(LaneSocket reopened) {
  if (!socket_.replace(std::move(reopened))) return close();
  closed_ = false;
  absent_ = false;
  pause_ = kFirstPause;
  silent_ = false;
  ++connection_;
  heard_ = Clock::now();
  // Frames that were queued again for a connection that did not last are sent only once.
  std::erase_if(queue_, [this](const std::string& frame) GPUMEM_REQUIRES(mutex_) {
    return find(lane::parse(frame)->header.request) != nullptr;
  });
  // The broker before may have ended with what it was told unread. Calls that are not answered may tell more.
  for (const auto& [device, told] : charges_)
    queue_.emplace_back(lane::Outgoing(lane::Charge{device, told.bytes, 0}, next_request()).bytes());
  for (Call* call = calls_; call != nullptr;) {
    Call* const next = call->next_;
    send_again(*call);
    call = next;
  }
  send_queued();
  crash_at(CrashPoint::kClientResent);
}

// An answer of which a part has come will not be completed: its growth fails, and gives that part back.
void Exchange::send_again(Call& call) {
  if (!call.sent_ || call.failed_) return;
  if (call.partly_) return fail(call, error("has ended while it answered"));
  if (call.arrived_) return;
  if (call.called_off_) return fail(call, called_off());
  call.since_ = heard_;
  if (call.of_ == Call::Of::kGrowth) {
    call.queued_ = false;
    renew(call);
  }
  queue_.emplace_back(call.frame_.bytes());
  call.changed_.notify_one();
}

}  // namespace gpumem::client
