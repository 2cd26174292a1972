#pragma once
#include <chrono>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/crash_point.h"
#include "base/system/large_stack.h"
#include "client/lane/exchange.h"
#include "client/lane/lane_resumption.h"
#include "gpumem/denial.h"

namespace gpumem::client {

/// One frame of a grant. Descriptor i belongs to lease i.
struct GrantPart {
  lane::Granted granted;
  std::vector<OwnFd> descriptors;  ///< fewer than leases: the broker is at fault, or there was no room
  bool lost_descriptors = false;   ///< there was no room (RLIMIT_NOFILE)
};

/// The memory behind a redeemed handle. Descriptor i belongs to extent i.
struct ImportedPart {
  lane::Imported imported;
  std::vector<OwnFd> descriptors;
  bool lost_descriptors = false;  ///< there was no room (RLIMIT_NOFILE)
};

/// What a region brings.
struct RegionPart {
  std::uint64_t version = 0;
  Bytes layout;  ///< so many of the range's last bytes say what is in it
  lane::LayoutDigest digest{};
  ImportedPart part;
};

/// How to wait for a growth.
struct GrowTerms {
  Exchange::Clock::time_point deadline;  ///< until then the broker grants, refuses, or says that it waits
  std::stop_token stop{};                ///< calls the growth off
  /// If the broker has ended, the next one is waited for until then, or until `deadline` if that is later.
  Exchange::Clock::time_point ends{};
};

/// The client's end of a session's lane, which carries all of the session's requests. Its end is the
/// session's end. Every call ends within the timeout, or by the deadline that it is given, a growth that
/// waits excepted, which ends within the timeout after its wait. Errors   kUnavailable: the broker is gone,
/// or does not answer; kInternal: it breaks the protocol; what it
///          refuses with.
/// A call needs little of the caller's stack, although frames are large: a fibre may have only 16 KiB.
/// Threads  any; calls of several threads are in flight together.
class Lane {
 public:
  using Clock = Exchange::Clock;

  /// `timeout`  of the calls.   Errors  as connect_error.   Blocks  until `deadline` at most.
  static Result<std::unique_ptr<Lane>> connect(const std::filesystem::path& socket,
                                               std::chrono::milliseconds timeout, Clock::time_point deadline);
  static Result<std::unique_ptr<Lane>> connect(const std::filesystem::path& socket,
                                               std::chrono::milliseconds timeout) {
    return connect(socket, timeout, deadline_in(timeout));
  }

  /// Introduces this process; once, before anything else. The session joins `job`, if the broker has a job of
  /// that number for it; the greeting says so. Errors  kFailedPrecondition, too: the broker speaks another
  /// protocol.
  Result<Greeting> greet(const std::string& label, Clock::time_point deadline, std::uint64_t job = 0);
  Result<Greeting> greet(const std::string& label) { return greet(label, deadline()); }
  /// Whether greet() has failed because there was no answer yet.
  bool awaits_greeting() const { return hello_ != nullptr; }
  /// The answer, if it has come since. Errors  as greet(); kUnavailable: it has not.   Blocks  no.
  Result<Greeting> greet_on();
  /// From now on, if the broker is restarted, the session goes on with the next one. `taken` is called with
  /// what that says before any further call is made; on its error the session is lost. Threads  any, one
  /// call at a time.
  using Taken = std::function<Result<void>(Greeting)>;
  void resume_after_restart(const Welcome& welcome, Taken taken);
  /// If the lane has broken, tries for `patience` to go on with the session. False: it is lost.
  bool mend(std::chrono::milliseconds patience) { return exchange_.mend(Clock::now() + patience); }

  /// Makes the request `body` and returns its answer.
  template <class Answer = lane::Done, class Body>
  Result<Answer> call(const Body& body) {
    return call<Answer>(body, deadline());
  }
  struct Nothing {
    void operator()() const {}
  };
  /// As one of several requests of a call that is to end by `deadline`. `meanwhile` is done while the broker
  /// is about to answer, and not if the request cannot be sent.
  template <class Answer = lane::Done, class Body, std::invocable Meanwhile = Nothing>
  Result<Answer> call(const Body& body, Clock::time_point deadline, const Meanwhile& meanwhile = {}) {
    return on_large_stack([&] { return call_here<Answer>(body, deadline, meanwhile); });
  }

  /// As call. If the broker does not answer, it is told all the same.
  template <class Body>
  Result<lane::Done> call_or_tell_later(const Body& body, Clock::time_point deadline) {
    auto answered = call(body, deadline);
    if (!answered && answered.error().code == Code::kUnavailable) tell_later(body);
    return answered;
  }
  template <class Body>
  Result<lane::Done> call_or_tell_later(const Body& body) {
    return call_or_tell_later(body, deadline());
  }

  /// Redeems a handle. The import is the caller's to release.
  Result<ImportedPart> import_handle(const lane::ImportHandle& body);
  /// Maps a region. May wait for it, as a growth waits for memory.
  Result<RegionPart> map_region(const lane::MapRegion& body, const GrowTerms& terms);
  /// The same, or a reservation of the region's name, which is the caller's to fulfil or to release.
  Result<std::variant<RegionPart, lane::NameReserved>> map_or_reserve(const lane::MapOrReserve& body,
                                                                      const GrowTerms& terms);

  /// Makes the request `body`, and gives `take` every part of the grant as it comes. The grant is the
  /// caller's to accept or to return, also if this fails after some parts. Errors  with the broker's Denial;
  /// kCancelled: by `terms.stop`, or by a signal (SignalWatch).
  Result<void, GrowError> grow(const lane::Grow& body, const GrowTerms& terms,
                               const std::function<void(GrantPart)>& take);

  /// Makes the request `body`, which may wait for memory as a growth. A reservation that was made cannot be
  /// given back: it ends with the session. Errors  as grow().
  Result<void, GrowError> reserve_for_job(const lane::ReserveForJob& body, const GrowTerms& terms);

  /// Announces a context, and waits for memory for it, as reserve_for_job().
  Result<void, GrowError> announce_context(const lane::AnnounceContext& body, const GrowTerms& terms);
  /// Reports what has become of a context that was announced.
  Result<void> context_done(const lane::ContextDone& body);

  /// Reports that every extent of `grant` is mapped.
  Result<void> accept(std::uint64_t grant);
  /// Reports that this process has nothing more to give back now on the device with index `device`.
  Result<void> spent(std::size_t device);
  /// Makes the request `body`, at once or when the broker answers again. Its answer is of no interest.
  template <class Body>
  void tell_later(const Body& body) {
    on_large_stack([&] { exchange_.tell_later(lane::Outgoing(body, exchange_.next_request())); });
    crash_when_sent<Body>();
  }
  /// Reports that this process has unmapped everything. If the broker is gone, does nothing.
  void goodbye();

  /// Ends the session: the program has closed a descriptor that it needs. Calls fail from now on, and say so.
  void abandon() { exchange_.abandon(); }

  /// Whether the session is lost: the broker has closed the lane, and none will resume it. Does not block.
  bool is_closed() {
    return on_large_stack([&] { return exchange_.is_closed(); });
  }

  /// The folder of the broker's sockets, for a session that takes the place of this one.
  std::filesystem::path runtime_folder() const { return path_.parent_path(); }

  std::chrono::milliseconds timeout() const { return exchange_.timeout(); }
  /// Of a call that begins now: one for all that it asks.
  Clock::time_point deadline() const { return deadline_in(exchange_.timeout()); }
  static Clock::time_point deadline_in(std::chrono::milliseconds timeout) {
    return Exchange::deadline_in(timeout);
  }

 private:
  template <class Answer, class Body, class Meanwhile>
  Result<Answer> call_here(const Body& body, Clock::time_point deadline, const Meanwhile& meanwhile) {
    Exchange::Call call(exchange_, deadline);
    LanePacket answer;
    auto sent =
        call.send(lane::Outgoing(body, call.request(), kIsOfUseLate<Body> ? 0 : nanoseconds(deadline)));
    if (!sent) return sent.error();
    crash_when_sent<Body>();
    meanwhile();
    if (auto awaited = call.await(answer); !awaited) return awaited.error();
    crash_when_answered<Body>();
    auto answered = body_in<Answer>(answer);
    // An earlier broker has done it, or the next one, because this session did not resume with it.
    if (kIsOfUseLate<Body> && !answered && answered.error().code == Code::kNotFound &&
        exchange_.was_resumed())
      return Answer{};
    return answered;
  }
  /// The process may end here, with the request on its way, or with its answer.
  template <class Body>
  static void crash_when_sent() {
    if constexpr (std::is_same_v<Body, lane::Return>) crash_at(CrashPoint::kClientReturnSent);
    if constexpr (std::is_same_v<Body, lane::ReleaseImport>) crash_at(CrashPoint::kClientReleaseSent);
    if constexpr (std::is_same_v<Body, lane::Publish>) crash_at(CrashPoint::kClientPublishSent);
    if constexpr (std::is_same_v<Body, lane::RemoveRegion>) crash_at(CrashPoint::kClientRemoveSent);
    if constexpr (std::is_same_v<Body, lane::ReleaseReservation>)
      crash_at(CrashPoint::kClientReservationReleaseSent);
  }
  template <class Body>
  static void crash_when_answered() {
    if constexpr (std::is_same_v<Body, lane::Publish>) crash_at(CrashPoint::kClientPublished);
    if constexpr (std::is_same_v<Body, lane::CloseSlice>) crash_at(CrashPoint::kClientSliceClosed);
    if constexpr (std::is_same_v<Body, lane::RemoveRegion>) crash_at(CrashPoint::kClientRemoved);
    if constexpr (std::is_same_v<Body, lane::ReleaseReservation>)
      crash_at(CrashPoint::kClientReservationReleased);
  }
  /// Frames that return something are of use however late the broker reads them.
  template <class Body>
  static constexpr bool kIsOfUseLate =
      std::is_same_v<Body, lane::Return> || std::is_same_v<Body, lane::CloseSlice> ||
      std::is_same_v<Body, lane::ReleaseImport> || std::is_same_v<Body, lane::ReleaseReservation>;

  Lane(OwnFd socket, const std::filesystem::path& path, std::chrono::milliseconds timeout)
      : path_(path), exchange_(LaneSocket(std::move(socket)), path.string(), timeout) {}
  static std::uint64_t nanoseconds(Clock::time_point time);
  /// The answer in `packet`. Errors  the broker's, if it is Failed; kInternal.
  template <class Answer>
  static Result<Answer> body_in(const LanePacket& packet);
  /// Sends the frame of `body`, which has no answer.
  template <class Body>
  Result<void> tell(const Body& body) {
    return on_large_stack([&] { return exchange_.tell(lane::Outgoing(body), deadline()); });
  }
  /// Asks for memory of another session; its descriptors are in `answer`.
  template <class Body>
  Result<void, GrowError> await_done(const Body& body, const GrowTerms& terms);
  template <class Answer, class Body>
  Result<Answer> ask_import(const Body& body, Clock::time_point deadline, LanePacket& answer);
  Result<Greeting> await_greeting();
  /// Asks for a region, and waits for what the broker has decided once the wait is over.
  template <class Body>
  Result<void> await_region(const Body& body, const GrowTerms& terms, LanePacket& answer);

  const std::filesystem::path path_;
  std::optional<LaneResumption> resumption_;
  Taken taken_;
  Exchange exchange_;
  std::unique_ptr<Exchange::Call> hello_;  ///< until it is answered
};

}  // namespace gpumem::client
