#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/lane/session_calls.h"
#include "tests/fuzz/input.h"
#include "tests/support/core_world.h"

namespace gpumem::fuzz {

/// The host of a broker without threads, sockets or a clock: jobs of the driver are done at once, time passes
/// when it is told to. It keeps its own account of what the frames it sends say.
/// A broken invariant ends the process.
class BrokerHost : public core::CoreWorld<>, public core::Executor, public core::PacketSender {
 public:
  explicit BrokerHost(const core::Policy& policy);

  /// What a session has, as far as it has been told.
  struct Session {
    std::map<std::uint64_t, std::uint64_t> slices;                           ///< the limit of each
    std::map<std::uint64_t, std::map<std::uint64_t, std::uint64_t>> leases;  ///< of a slice: their sizes
    std::vector<std::uint64_t> grants;
    std::vector<std::uint64_t> imports;
    std::map<std::uint64_t, int> due;            ///< answers that are to come, by the request's number
    std::map<std::uint64_t, std::string> asked;  ///< the last request of each number
  };

  /// Does `work` on the broker, and what follows from it.
  void run(const Work& work);
  /// None: the broker refuses it.
  SessionId connect(std::uint32_t uid);
  /// Gives the packet of a session that lives to the broker. False: it broke the protocol, and is to be
  /// ended.
  bool receive(SessionId session, const std::string& packet);
  void end(SessionId session, core::SessionEnd how);
  void exited(SessionId session);
  /// Lets `time` pass.
  void pass(core::Duration time);
  /// Lets time pass until nothing is left to do.
  void come_to_rest();
  /// After all sessions have ended: an administrator removes the regions that are kept, and nothing is left.
  void require_nothing_left();
  /// The driver refuses the next `count` extents.
  void fail_next(std::size_t count) { failures_ = count; }
  /// After `count` more packets the next one finds its lane broken, which ends its session so.
  void break_lane_after(std::size_t count, core::SessionEnd how) { breaks_ = {{count, how}}; }

  bool lives(SessionId session) const { return sessions_.contains(session); }
  const Session& told(SessionId session) const { return sessions_.at(session); }
  /// Every handle that the broker gave out.
  const std::vector<lane::HandleBytes>& handles() const { return handles_; }
  std::uint64_t last_reservation() const { return reservation_; }

  // core::Executor: the part that transports use.
  void post(Work work) override { run(work); }
  void after(std::function<void()> done) override { after_.push_back(std::move(done)); }
  Result<void> write_down() override { return {}; }
  std::optional<core::Caller> caller_of(int) const override { return {}; }
  /// A session by gRPC of the user whose number is that of the connection: its holder is told of pressure.
  Result<SessionId> open_session(int connection, std::string label, core::CommandJobId job,
                                 std::shared_ptr<core::SessionHolder> holder) override;
  void end_session(SessionId session) override;
  RequestId grow(SessionId session, const core::Grow& request, GrowAnswer answer) override;
  RequestId reserve_for_job(SessionId session, const core::ReserveForJob& request,
                            GrowAnswer answer) override;
  RequestId announce_context(SessionId session, const core::AnnounceContext& request,
                             GrowAnswer answer) override;
  RequestId map_region(SessionId session, const core::MapRegion& request, MapAnswer answer) override;
  void cancel(RequestId request) override;
  std::optional<core::HandleBytes> fabric_handle(ExtentId) const override { return {}; }
  std::optional<ClientFigures> client_figures(SessionId, core::DeviceIndex, Bytes) const override {
    return {};
  }
  void watch(std::shared_ptr<core::EventWatcher>, std::optional<core::WallTime>) override {}
  void unwatch(const core::EventWatcher&) override {}
  // core::PacketSender
  bool is_behind(SessionId) const override { return false; }
  void send(SessionId session, std::string_view bytes, const core::SentExtents& extents) override;

 private:
  struct Pending {
    SessionId session;
    GrowAnswer answer;
  };

  friend CoreWorld<>;
  void do_effects();
  void take(core::AnswerGrow& effect);
  void take(core::AnswerMap& effect);
  void take(core::RingDoorbell& effect) { press(effect.session); }
  void take(auto&) {}
  void press(SessionId session);
  void end_requests_of(SessionId session);
  void note_answer(Session& session, const lane::Incoming& frame, std::span<const ExtentId> extents);
  void note_grant(Session& session, const lane::Granted& granted, std::span<const ExtentId> extents);
  void note_done(Session& session, const std::string& request);
  void check() const;

  lane::SessionCalls calls_;
  std::size_t failures_ = 0;
  std::optional<std::pair<std::size_t, core::SessionEnd>> breaks_;
  bool running_ = false;
  std::set<ExtentId> lent_;  ///< sent to some session
  std::set<std::uint64_t> leases_;
  std::vector<lane::HandleBytes> handles_;
  std::uint64_t region_ = 0;       ///< the last version
  std::uint64_t reservation_ = 0;  ///< the last number
  std::vector<std::function<void()>> after_;
  IdSource<RequestId> request_ids_;
  std::map<RequestId, Pending> pending_;
  std::map<RequestId, std::pair<SessionId, MapAnswer>> pending_maps_;
  std::map<SessionId, Session> sessions_;                              ///< whose lane lives
  std::map<SessionId, std::shared_ptr<core::SessionHolder>> holders_;  ///< of sessions by gRPC
};

/// Two devices, and a tenant each for the users 1 and 2; reclaims as `input` says.
core::Policy some_policy(Input& input);

}  // namespace gpumem::fuzz
