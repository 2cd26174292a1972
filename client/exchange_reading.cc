#include <poll.h>

#include <utility>

#include "client/exchange.h"
#include "client/status.h"

// Reads frames from the lane and finds the call that each one answers.

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
  claim_.note_received(*frame);
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
    call.deadline_ = heard_ + kLongest;  // the broker answers, unless it falls silent
    return;
  }
  call.partly_ = has_more(frame);
  if (call.partly_) {
    undrained_ = &call;
  } else {
    unlink(call);
  }
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

}  // namespace gpumem::client
