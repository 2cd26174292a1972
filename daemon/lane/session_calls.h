#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/crash_point.h"
#include "daemon/core/broker/executor.h"
#include "daemon/core/broker/written_requests.h"
#include "daemon/lane/convert.h"

namespace gpumem::lane {

/// The lane's transport of the calls that sessions make: frames in, frames out.
/// Threads  the core's.
class SessionCalls final : public core::PacketReceiver {
 public:
  /// Both outlive it, and every answer.
  SessionCalls(core::Executor& executor, core::PacketSender& sender) : executor_(executor), sender_(sender) {}

  Result<void> receive(SessionId session, std::string_view packet, core::Broker& broker,
                       core::TimePoint now) override;

 private:
  // One packet on its way through.
  struct Call {
    SessionId session;
    std::uint64_t number = 0;  ///< the client's own
    core::Broker& broker;
    core::TimePoint now;
    bool expired = false;  ///< nobody waits for its answer any more
  };

  Result<void> take(const Call& call, const OpenSlice& body);
  Result<void> take(const Call& call, const CloseSlice& body);
  Result<void> take(const Call& call, const Grow& body);
  Result<void> take(const Call& call, const Return& body);
  Result<void> take(const Call& call, const ExportHandle& body);
  Result<void> take(const Call& call, const ImportHandle& body);
  Result<void> take(const Call& call, const RevokeHandle& body);
  Result<void> take(const Call& call, const ReleaseImport& body);
  Result<void> take(const Call& call, const Publish& body);
  Result<void> take(const Call& call, const MapRegion& body);
  Result<void> take(const Call& call, const MapOrReserve& body);
  Result<void> take(const Call& call, const ReleaseReservation& body);
  Result<void> take(const Call& call, const RemoveRegion& body);
  Result<void> take(const Call& call, const Charge& body);
  Result<void> take(const Call& call, const Ping& body);
  Result<void> take(const Call& call, const Cancel& body);
  Result<void> take(const Call& call, const Accept& body);
  Result<void> take(const Call& call, const Spent& body);
  Result<void> take(const Call& call, const Describe& body);
  Result<void> take(const Call& call, const Explain& body);
  Result<void> take(const Call& call, const BeginJob& body);
  Result<void> take(const Call& call, const ReserveForJob& body);
  Result<void> take(const Call& call, const AnnounceContext& body);
  Result<void> take(const Call& call, const ContextDone& body);
  Result<void> take(const Call& call, const DescribeJob& body);
  // `ask(answer)`  asks for it, and gives its number.
  template <class Ask>
  Result<void> begin_growth(const Call& call, Ask ask);
  template <class Body>
  Result<void> understand(const Call& call, const Incoming& frame);
  static Error broken(std::string_view what);
  // Whether its deadline has passed before the broker came to it: then it has been answered.
  bool is_late(const Call& call);

  bool may_import(const Call& call);
  template <class Body>
  void answer_import(const Call& call, const Body& body, const core::Imported& imported, CrashPoint sent);
  // Once the pages show what has become of it.
  template <class Body>
  void answer_later(const Call& call, const Body& body, core::SentExtents extents = {});
  static core::SentExtents extents_of(const core::Imported& imported);
  void answer_later(const Call& call, const Result<void>& done);
  template <class T>
  void answer_with_body(const Call& call, const Result<T>& result) {
    if (result)
      answer_later(call, to_body(*result));
    else
      answer_later(call, failed_with(result.error()));
  }
  void answer_growth(SessionId session, std::uint64_t number,
                     const Result<core::Grant, core::GrowFailure>& answer);
  void tell_of_waiting(const Call& call);
  Result<void> await_region(const Call& call, const core::MapRegion& request);
  void answer_map(SessionId session, std::uint64_t number, const Result<core::MapOutcome>& answer);

  core::Executor& executor_;
  core::PacketSender& sender_;
  std::map<std::pair<SessionId, std::uint64_t>, RequestId> growths_;  ///< under way, by the client's number
  std::map<std::pair<SessionId, std::uint64_t>, RequestId> maps_;     ///< under way, for regions
};

template <class Body>
void SessionCalls::answer_import(const Call& call, const Body& body, const core::Imported& imported,
                                 CrashPoint sent) {
  answer_later(call, body, extents_of(imported));
  executor_.after([sent] { crash_at(sent); });
}

template <class Body>
void SessionCalls::answer_later(const Call& call, const Body& body, core::SentExtents extents) {
  executor_.after([this, session = call.session, bytes = std::string(Outgoing(body, call.number).bytes()),
                   extents = std::move(extents)] { sender_.send(session, bytes, extents); });
}

}  // namespace gpumem::lane
