#include "client/lane/exchange.h"

#include <poll.h>

#include <algorithm>

#include "base/crash_point.h"
#include "base/thread_guards.h"
#include "client/process/status.h"

namespace gpumem::client {
namespace {

using Clock = Exchange::Clock;

/// The growth or reservation in `frame`, or the region that is waited for, after it has waited for `waited`,
/// to be decided until `deadline`.
lane::Outgoing rest_of(const lane::Outgoing& frame, Clock::duration waited, Clock::time_point deadline) {
  const auto count = [](Clock::duration time) {
    return static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count());
  };
  const auto parsed = lane::parse(frame.bytes());
  const auto shortened = [&](auto body, std::uint64_t least) {
    body.wait -= std::min(body.wait - std::min(body.wait, least), count(waited));
    return lane::Outgoing(body, parsed->header.request, count(deadline.time_since_epoch()));
  };
  // A request that waited for a region in vain gets an answer that says so.
  if (auto map = lane::body_of<lane::MapRegion>(*parsed)) return shortened(*map, 1);
  if (auto map = lane::body_of<lane::MapOrReserve>(*parsed)) return shortened(*map, 1);
  if (auto growth = lane::body_of<lane::Grow>(*parsed)) return shortened(*growth, 0);
  if (auto job = lane::body_of<lane::ReserveForJob>(*parsed)) return shortened(*job, 0);
  if (auto context = lane::body_of<lane::AnnounceContext>(*parsed)) return shortened(*context, 0);
  return frame;
}

std::optional<lane::Charge> charge_in(std::string_view bytes) {
  const auto frame = lane::parse(bytes);
  if (!frame) return std::nullopt;
  const auto body = lane::body_of<lane::Charge>(*frame);
  return body ? std::optional(*body) : std::nullopt;
}

}  // namespace

Exchange::Exchange(LaneSocket socket, std::string peer, std::chrono::milliseconds timeout)
    : socket_(std::move(socket)),
      peer_(std::move(peer)),
      timeout_(std::clamp(timeout, std::chrono::milliseconds(1), kLongestWait)) {}

Exchange::Clock::time_point Exchange::deadline_in(std::chrono::milliseconds timeout) {
  return Clock::now() + std::clamp(timeout, std::chrono::milliseconds(1), kLongestWait);
}

Error Exchange::error(std::string_view what) const {
  return {Code::kUnavailable, "the broker at " + peer_ + " " + std::string(what) +
                                  "; memory that is already mapped stays usable (systemctl status gpumemd)"};
}

Error Exchange::gone() const {
  if (lost_) return *lost_;
  if (!may_resume()) return error("has closed the connection");
  const std::string why = obstacle_.empty() ? "" : ": " + obstacle_;
  return error("has ended, and no other resumes the session yet" + why);
}

// ---- A call ----

Exchange::Call::Call(Exchange& exchange, Deadlines deadlines, Of of)
    : exchange_(exchange),
      request_(exchange.next_request()),
      of_(of),
      frame_(lane::Ping{}),
      deadline_(deadlines.answer),
      broker_deadline_(std::max(deadlines.answer, deadlines.broker)) {
  if (deadlines.is_wait || deadlines.broker > deadlines.answer) signals_.emplace();
}

Exchange::Call::~Call() {
  const MutexLock lock(exchange_.mutex_);
  if (exchange_.undrained_ == this) exchange_.undrained_ = nullptr;
  if (linked_) {
    exchange_.unlink(*this);
    if (of_ == Of::kGrowth) exchange_.queue(lane::Outgoing(lane::Cancel{request_}));
  }
  if (arrived_) {
    if (const auto frame = lane::parse(packet_.view())) exchange_.give_back(*frame);
  }
  exchange_.send_queued();
  exchange_.wake_reader();
}

Result<void> Exchange::Call::send(const lane::Outgoing& frame) {
  const NotCancelled whole;
  const MutexLock lock(exchange_.mutex_);
  frame_ = frame;
  begun_ = Clock::now();
  if (auto begun = exchange_.begin(*this); !begun) return begun;
  exchange_.holdings_.note_sent(frame_.bytes());
  auto sent = exchange_.send(*this);
  sent_ = sent.has_value();
  if (sent) return sent;
  exchange_.unlink(*this);
  exchange_.wake_reader();
  return exchange_.closed_ ? sent.error() : exchange_.give_up(*this);
}

Result<void> Exchange::Call::await(LanePacket& answer) {
  const NotCancelled whole;
  const MutexLock lock(exchange_.mutex_);
  auto awaited = exchange_.await(*this);
  if (awaited) {
    answer.take(packet_);
    arrived_ = false;
    if (exchange_.undrained_ == this) exchange_.undrained_ = nullptr;
  }
  exchange_.wake_reader();
  return awaited;
}

void Exchange::Call::go_on() {
  const MutexLock lock(exchange_.mutex_);
  since_ = Clock::now();
  if (std::exchange(queued_, false)) deadline_ = since_ + exchange_.timeout_;
}

void Exchange::Call::retry(Clock::time_point deadline) {
  const MutexLock lock(exchange_.mutex_);
  deadline_ = deadline;
  since_ = Clock::now();
}

void Exchange::Call::call_off() {
  const MutexLock lock(exchange_.mutex_);
  if (!linked_) return;
  called_off_ = true;
  broker_deadline_ = std::min(broker_deadline_, Clock::now() + exchange_.timeout_);
  deadline_ = std::min(deadline_, Clock::now() + exchange_.timeout_);
  exchange_.queue(lane::Outgoing(lane::Cancel{request_}));
  exchange_.send_queued();
  changed_.notify_one();
}

// ---- Sending ----

Result<void> Exchange::begin(Call& call) {
  if (!closed_ && silent_) read_what_is_there();
  if (auto open = wait_for_broker(call.broker_deadline_, &call); !open) return open;
  const Clock::time_point now = Clock::now();
  if (silent_) {
    if (probed_ + timeout_ <= now) probe(now);
    return silent();
  }
  send_queued();
  call.since_ = now;
  link(call);
  return {};
}

LaneSocket::Sent Exchange::try_to_send(std::string_view bytes, Clock::time_point room) {
  const std::uint64_t connection = connection_;
  for (;;) {
    LaneSocket::Sent sent = send_queue();
    if (sent == LaneSocket::Sent::kYes) sent = socket_.send(bytes);
    if (sent == LaneSocket::Sent::kYes) return sent;
    if (sent == LaneSocket::Sent::kGone) {
      read_what_is_there();
      close();
      return sent;
    }
    read_what_is_there();  // a broker whose answers nobody reads ends the session
    if (closed_ || connection != connection_) return LaneSocket::Sent::kGone;
    const short events = static_cast<short>(may_read() ? POLLIN | POLLOUT : POLLOUT);
    mutex_.unlock();
    const bool has_room = socket_.wait(events, room);
    mutex_.lock();
    if (closed_ || connection != connection_) return LaneSocket::Sent::kGone;
    if (!has_room) return LaneSocket::Sent::kFull;
  }
}

// The frame goes out on one connection or the next, never on both: no other thread opens one meanwhile.
Result<void> Exchange::send(Call& call) {
  for (;;) {
    if (auto open = wait_for_broker(call.broker_deadline_, &call); !open) return open;
    // A call that waited for a broker may have used up the time that its frame states.
    if (call.of_ == Call::Of::kGrowth && Clock::now() - call.begun_ > timeout_ / 4) renew(call);
    const LaneSocket::Sent sent = try_to_send(call.frame_.bytes(), call.deadline_);
    if (sent == LaneSocket::Sent::kYes) return {};
    if (sent == LaneSocket::Sent::kFull) return silent();
  }
}

// A growth has as much time as before, less what it has waited, and its answer what is left until then.
void Exchange::renew(Call& call) {
  const Clock::time_point now = Clock::now();
  call.deadline_ = std::min(now + timeout_, call.broker_deadline_);
  call.frame_ = rest_of(call.frame_, now - call.begun_, call.deadline_);
  call.begun_ = now;
}

// Another broker would have no use for it.
Result<void> Exchange::tell(const lane::Outgoing& frame, Clock::time_point deadline) {
  const NotCancelled whole;
  const MutexLock lock(mutex_);
  if (silent_) read_what_is_there();
  send_queued();
  const LaneSocket::Sent sent = closed_ ? LaneSocket::Sent::kGone : try_to_send(frame.bytes(), deadline);
  if (sent == LaneSocket::Sent::kFull) return silent();
  return sent == LaneSocket::Sent::kYes || may_resume() ? Result<void>() : gone();
}

void Exchange::tell_later(const lane::Outgoing& frame) {
  const NotCancelled whole;
  const MutexLock lock(mutex_);
  queue(frame);
  read_what_is_there();  // answers that nobody awaits: unread, they would keep the broker from sending more
  send_queued();         // to a silent one, too: nobody may call again when it goes on
}

// Unread data in a socket that is closed resets the connection. Then the other side might not get to read
// `last`.
void Exchange::end(const lane::Outgoing& last) {
  const NotCancelled whole;
  const MutexLock lock(mutex_);
  // A session that is not resumed cannot say that it has returned everything.
  if (closed_ && may_resume()) static_cast<void>(wait_for_broker(Clock::now() + timeout_));
  if (closed_ && resumption_.leave) return resumption_.leave(last.bytes());
  socket_.stop_receiving();
  read_what_is_there();
  queue(last);
  send_queued();
}

void Exchange::queue(const lane::Outgoing& frame) {
  holdings_.note_sent(frame.bytes());
  note_told(frame.bytes());
  if (const auto newer = charge_in(frame.bytes())) {
    std::erase_if(queue_, [&](const std::string& queued) GPUMEM_REQUIRES(mutex_) {
      const auto older = charge_in(queued);
      return older && older->device == newer->device && find(lane::parse(queued)->header.request) == nullptr;
    });
  }
  queue_.emplace_back(frame.bytes());
}

void Exchange::note_told(std::string_view frame) {
  const auto charge = charge_in(frame);
  if (!charge) return;
  const std::uint64_t request = lane::parse(frame)->header.request;
  Told& told = charges_[charge->device];
  if (request >= told.request) told = {request, charge->bytes};  // a later one may have been told meanwhile
}

void Exchange::send_queued() {
  if (send_queue() == LaneSocket::Sent::kGone) close();
}

LaneSocket::Sent Exchange::send_queue() {
  while (!queue_.empty()) {
    const LaneSocket::Sent sent = socket_.send(queue_.front());
    if (sent != LaneSocket::Sent::kYes) return sent;
    queue_.pop_front();
  }
  return LaneSocket::Sent::kYes;
}

// Of no deadline: it is answered however late, which ends the silence.
void Exchange::probe(Clock::time_point now) {
  probed_ = now;
  (void)socket_.send(lane::Outgoing(lane::Ping{}, next_request()).bytes());
}

// ---- Waiting ----

Result<void> Exchange::await(Call& call) {
  for (;;) {
    if (call.arrived_) return {};
    if (call.failed_) return *call.failed_;
    if (call.is_interrupted()) return call.signals_->error();
    if (closed_) {
      auto open = wait_for_broker(call.broker_deadline_, &call);
      if (!open) return call.called_off_ ? called_off() : open.error();
      continue;
    }
    Clock::time_point until = patience_ends(call);
    if (call.signals_) until = std::min(until, Clock::now() + SignalWatch::kLook);
    if (may_read()) {
      if (read(until)) continue;  // what is there is read before anybody loses patience
    } else {
      call.asleep_ = true;
      call.changed_.wait_until(mutex_, until);
      call.asleep_ = false;
      if (call.arrived_ || call.failed_ || closed_ || may_read()) continue;
    }
    if (auto patient = check_patience(call); !patient) return patient;
  }
}

Clock::time_point Exchange::patience_ends(const Call& call) const {
  if (!call.queued_) return std::max(call.deadline_, call.grace_);
  return std::max(std::min(call.deadline_, std::max(heard_, probed_) + timeout_), call.grace_);
}

Result<void> Exchange::check_patience(Call& call) {
  const Clock::time_point now = Clock::now();
  if (now < patience_ends(call)) return {};
  if (now < call.deadline_ && probed_ <= heard_) {
    probe(now);
    return {};
  }
  // This process may have been stopped, and the thread that reads has not gone on yet.
  if (reading_ && call.grace_ == Clock::time_point() && socket_.wait(POLLIN, now)) {
    call.grace_ = now + timeout_;
    return {};
  }
  return give_up(call);
}

Error Exchange::give_up(const Call& call) {
  const Clock::time_point now = Clock::now();
  if (heard_ < call.since_ || heard_ + timeout_ <= now) {
    silent_ = true;
    if (probed_ <= heard_ || probed_ + timeout_ <= now) probe(now);
  }
  return silent();
}

void Exchange::wake_reader() {
  if (!may_read()) return;
  for (Call* call = calls_; call != nullptr; call = call->next_) {
    if (call->asleep_) return call->changed_.notify_one();
  }
}

// ---- The list of calls ----

Exchange::Call* Exchange::find(std::uint64_t request) const {
  Call* call = calls_;
  while (call != nullptr && call->request_ != request) call = call->next_;
  return call;
}

void Exchange::link(Call& call) {
  call.linked_ = true;
  call.next_ = calls_;
  if (calls_ != nullptr) calls_->previous_ = &call;
  calls_ = &call;
}

void Exchange::unlink(Call& call) {
  if (!std::exchange(call.linked_, false)) return;
  (call.previous_ != nullptr ? call.previous_->next_ : calls_) = call.next_;
  if (call.next_ != nullptr) call.next_->previous_ = call.previous_;
  call.previous_ = call.next_ = nullptr;
}

}  // namespace gpumem::client
