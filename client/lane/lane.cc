#include "client/lane/lane.h"

#include <algorithm>
#include <optional>

#include "base/crash_point.h"
#include "base/thread_guards.h"
#include "client/process/status.h"

namespace gpumem::client {
namespace {

/// The answer in `packet`. Errors  the broker's, if it is Failed; kInternal.
/// `off`  as for error_of.
template <class Answer>
Result<Answer, GrowError> answer_in(const LanePacket& packet, bool off = false) {
  const auto frame = lane::parse(packet.view());
  if (!frame) return GrowError(protocol_error(frame.error().message));
  if (frame->header.kind == lane::Kind::kFailed) {
    auto failed = lane::body_of<lane::Failed>(*frame);
    if (!failed) return GrowError(protocol_error(failed.error().message));
    return error_of(*failed, off);
  }
  auto body = lane::body_of<Answer>(*frame);
  if (!body) return GrowError(protocol_error(body.error().message));
  return *body;
}

RegionPart part_of(const lane::RegionMapped& mapped, LanePacket& answer) {
  const lane::Imported imported{mapped.import, mapped.device, mapped.offset,
                                mapped.bytes,  mapped.count,  mapped.sizes};
  return {mapped.version,
          {mapped.layout},
          mapped.digest,
          {imported, std::move(answer.descriptors), answer.lost_descriptors}};
}

/// Whether the parts of a grant follow on each other.
class GrantOrder {
 public:
  Result<void> check(const lane::Granted& part) {
    if (part.count == 0 && part.missing != 0) return protocol_error("a part of a grant without leases");
    if (last_ && (part.grant != last_->grant || part.missing + part.count != last_->missing))
      return protocol_error("a grant whose parts are not of one grant");
    last_ = {part.grant, part.missing};
    return {};
  }

 private:
  struct Last {
    std::uint64_t grant;
    std::uint64_t missing;
  };
  std::optional<Last> last_;
};

/// Where this process may end, with a request on its way that may wait, and with its answer.
struct CrashPair {
  CrashPoint sent, answered;
};
template <class Body>
constexpr CrashPair kAwaited{CrashPoint::kClientMapSent, CrashPoint::kClientMapReceived};
template <>
constexpr CrashPair kAwaited<lane::MapOrReserve>{CrashPoint::kClientReserveSent, CrashPoint::kClientReserved};

}  // namespace

Result<std::unique_ptr<Lane>> Lane::connect(const std::filesystem::path& socket,
                                            std::chrono::milliseconds timeout, Clock::time_point deadline) {
  const NotCancelled whole;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  auto connected = connect_lane(socket, left);
  if (!connected) return connected.error();
  crash_at(CrashPoint::kClientConnected);
  return std::unique_ptr<Lane>(new Lane(std::move(*connected), socket, timeout));
}

std::uint64_t Lane::nanoseconds(Clock::time_point time) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(time.time_since_epoch()).count());
}

template <class Answer>
Result<Answer> Lane::body_in(const LanePacket& packet) {
  auto answer = answer_in<Answer>(packet);
  if (!answer) return Error(std::move(answer).error());
  return *answer;
}

template Result<lane::Done> Lane::body_in(const LanePacket&);
template Result<lane::SliceOpened> Lane::body_in(const LanePacket&);
template Result<lane::HandleExported> Lane::body_in(const LanePacket&);
template Result<lane::Published> Lane::body_in(const LanePacket&);
template Result<lane::RegionMapped> Lane::body_in(const LanePacket&);
template Result<lane::JobBegun> Lane::body_in(const LanePacket&);
template Result<lane::JobDescribed> Lane::body_in(const LanePacket&);

template <class Answer, class Body>
Result<Answer> Lane::ask_import(const Body& body, Clock::time_point deadline, LanePacket& answer) {
  Exchange::Call call(exchange_, deadline);
  auto sent = call.send(lane::Outgoing(body, call.request(), nanoseconds(deadline)));
  if (!sent) return sent.error();
  constexpr bool kIsRegion = std::is_same_v<Answer, lane::RegionMapped>;
  crash_at(kIsRegion ? CrashPoint::kClientMapSent : CrashPoint::kClientImportSent);
  if (auto awaited = call.await(answer); !awaited) return awaited.error();
  crash_at(kIsRegion ? CrashPoint::kClientMapReceived : CrashPoint::kClientImportReceived);
  return body_in<Answer>(answer);
}

Result<ImportedPart> Lane::import_handle(const lane::ImportHandle& body) {
  return on_large_stack([&]() -> Result<ImportedPart> {
    LanePacket answer;
    auto imported = ask_import<lane::Imported>(body, deadline(), answer);
    if (!imported) return Error(std::move(imported).error());
    return ImportedPart{*imported, std::move(answer.descriptors), answer.lost_descriptors};
  });
}

template <class Body>
Result<void> Lane::await_region(const Body& body, const GrowTerms& terms, LanePacket& answer) {
  Exchange::Call call(exchange_, {terms.deadline, terms.ends}, Exchange::Call::Of::kGrowth);
  auto sent = call.send(lane::Outgoing(body, call.request(), nanoseconds(terms.deadline)));
  if (!sent) return sent;
  crash_at(kAwaited<Body>.sent);
  const std::stop_callback call_off(terms.stop, [&call] { call.call_off(); });
  if (auto awaited = call.await(answer); !awaited) return awaited;
  crash_at(kAwaited<Body>.answered);
  return {};
}

Result<RegionPart> Lane::map_region(const lane::MapRegion& body, const GrowTerms& terms) {
  return on_large_stack([&]() -> Result<RegionPart> {
    LanePacket answer;
    if (body.wait == 0) {
      const auto mapped = ask_import<lane::RegionMapped>(body, terms.deadline, answer);
      if (!mapped) return mapped.error();
      return part_of(*mapped, answer);
    }
    if (auto awaited = await_region(body, terms, answer); !awaited) return awaited.error();
    const auto mapped = answer_in<lane::RegionMapped>(answer, terms.stop.stop_requested());
    if (!mapped) return Error(mapped.error());
    return part_of(*mapped, answer);
  });
}

Result<std::variant<RegionPart, lane::NameReserved>> Lane::map_or_reserve(const lane::MapOrReserve& body,
                                                                          const GrowTerms& terms) {
  using Outcome = std::variant<RegionPart, lane::NameReserved>;
  return on_large_stack([&]() -> Result<Outcome> {
    LanePacket answer;
    if (auto awaited = await_region(body, terms, answer); !awaited) return awaited.error();
    const auto frame = lane::parse(answer.view());
    if (frame && frame->header.kind == lane::Kind::kNameReserved) {
      const auto reserved = body_in<lane::NameReserved>(answer);
      if (!reserved) return reserved.error();
      if (!terms.stop.stop_requested()) return Outcome(*reserved);
      // The broker ends what a request got that is called off too late; this one may have crossed with that.
      static_cast<void>(call(lane::ReleaseReservation{reserved->reservation}));
      return Error{Code::kCancelled, "the request was called off"};
    }
    const auto mapped = answer_in<lane::RegionMapped>(answer, terms.stop.stop_requested());
    if (!mapped) return Error(mapped.error());
    return Outcome(part_of(*mapped, answer));
  });
}

Result<Greeting> Lane::greet(const std::string& label, Clock::time_point deadline, std::uint64_t job) {
  lane::Hello hello{};
  hello.oldest = lane::kVersion;
  hello.newest = lane::kVersion;
  hello.job = job;
  hello.label = decltype(hello.label)::of(label);
  hello_ = std::make_unique<Exchange::Call>(exchange_, deadline);
  return on_large_stack([&]() -> Result<Greeting> {
    auto sent = hello_->send(lane::Outgoing(hello, hello_->request(), nanoseconds(deadline)));
    if (sent) return await_greeting();
    hello_.reset();
    return sent.error();
  });
}

Result<Greeting> Lane::greet_on() {
  hello_->retry(Clock::now());
  return on_large_stack([&] { return await_greeting(); });
}

Result<Greeting> Lane::await_greeting() {
  LanePacket answer;
  const auto awaited = hello_->await(answer);
  if (awaited || awaited.error().code != Code::kUnavailable) hello_.reset();
  if (!awaited) return awaited.error();
  auto body = answer_in<lane::Welcome>(answer);
  if (!body) {
    const bool refused = body.error().code != Code::kInternal;
    return refused ? body.error().in("the broker refuses this process") : Error(body.error());
  }
  crash_at(CrashPoint::kClientGreeted);
  return greeting_of(*body, answer);
}

void Lane::resume_after_restart(const Welcome& welcome, Taken taken) {
  resumption_.emplace(path_, welcome);
  taken_ = std::move(taken);
  exchange_.set_resumption(
      {.attempt = [this](const SessionHoldings::Frames& holdings,
                         Clock::time_point deadline) -> Result<std::optional<LaneSocket>> {
         auto resumed = resumption_->attempt(holdings, deadline);
         if (!resumed) return resumed.error();
         if (!*resumed) return std::optional<LaneSocket>();
         if (auto taken = taken_(std::move((*resumed)->greeting)); !taken) return taken.error();
         return std::optional(std::move((*resumed)->socket));
       },
       .obstacle = [this] { return resumption_->obstacle(); },
       .has_reached_one = [this] { return resumption_->has_reached_one(); },
       .leave = [this](std::string_view goodbye) { resumption_->leave(goodbye); }});
}

Result<void, GrowError> Lane::grow(const lane::Grow& body, const GrowTerms& terms,
                                   const std::function<void(GrantPart)>& take) {
  return on_large_stack([&]() -> Result<void, GrowError> {
    Exchange::Call call(exchange_, {terms.deadline, terms.ends, body.wait != 0}, Exchange::Call::Of::kGrowth);
    auto sent = call.send(lane::Outgoing(body, call.request(), nanoseconds(terms.deadline)));
    if (!sent) return GrowError(sent.error());
    crash_at(CrashPoint::kClientGrowSent);
    const std::stop_callback call_off(terms.stop, [&call] { call.call_off(); });
    for (GrantOrder order;;) {
      LanePacket answer;
      if (auto awaited = call.await(answer); !awaited) return GrowError(awaited.error());
      auto granted = answer_in<lane::Granted>(answer, terms.stop.stop_requested());
      if (!granted) return granted.error();
      const auto in_order = order.check(*granted);
      const bool last = granted->missing == 0;
      crash_at(CrashPoint::kClientGrowReceived);
      take({*granted, std::move(answer.descriptors), answer.lost_descriptors});
      if (!in_order) return GrowError(in_order.error());
      if (last) return {};
      call.go_on();
    }
  });
}

template <class Body>
Result<void, GrowError> Lane::await_done(const Body& body, const GrowTerms& terms) {
  return on_large_stack([&]() -> Result<void, GrowError> {
    Exchange::Call call(exchange_, {terms.deadline, terms.ends, body.wait != 0}, Exchange::Call::Of::kGrowth);
    auto sent = call.send(lane::Outgoing(body, call.request(), nanoseconds(terms.deadline)));
    if (!sent) return GrowError(sent.error());
    const std::stop_callback call_off(terms.stop, [&call] { call.call_off(); });
    LanePacket answer;
    if (auto awaited = call.await(answer); !awaited) return GrowError(awaited.error());
    const auto done = answer_in<lane::Done>(answer, terms.stop.stop_requested());
    if (!done) return done.error();
    return {};
  });
}

Result<void, GrowError> Lane::reserve_for_job(const lane::ReserveForJob& body, const GrowTerms& terms) {
  return await_done(body, terms);
}

Result<void, GrowError> Lane::announce_context(const lane::AnnounceContext& body, const GrowTerms& terms) {
  return await_done(body, terms);
}

Result<void> Lane::context_done(const lane::ContextDone& body) { return tell(body); }

Result<void> Lane::accept(std::uint64_t grant) { return tell(lane::Accept{grant}); }

Result<void> Lane::spent(std::size_t device) { return tell(lane::Spent{device}); }

void Lane::goodbye() {
  crash_at(CrashPoint::kClientGoodbye);
  on_large_stack([&] { exchange_.end(lane::Outgoing(lane::Goodbye{})); });
  crash_at(CrashPoint::kClientLeft);
}

}  // namespace gpumem::client
