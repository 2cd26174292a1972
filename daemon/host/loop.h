#pragma once
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>

#include "daemon/core/gate.h"
#include "daemon/host/bell.h"
#include "daemon/host/complaints.h"
#include "daemon/host/control_lanes.h"
#include "daemon/host/event_log.h"
#include "daemon/host/extents.h"
#include "daemon/host/lane.h"
#include "daemon/host/lane_listener.h"
#include "daemon/host/shared_pages.h"

namespace gpumem::host {

/// The core's thread: it decides, serves the lanes, and does what the core wants done. All other threads
/// reach it through the gate.
class Loop final : public core::Gate, private LaneHandler {
 public:
  struct Options {
    core::Policy policy;
    const cuda::Driver* driver = nullptr;
    std::string driver_folder;  ///< told to clients, so that they open the same driver
    UniqueFd lane_socket;
    std::optional<std::uint32_t> admin_gid;  ///< whose members may administer, as root may
  };
  /// Errors  kNotFound: a device of the policy that the driver does not show.
  static Result<std::unique_ptr<Loop>> create(Options options);
  /// Ends every lane and joins the threads.
  ~Loop() override;

  /// Starts the thread, and creates the pools; returns when they are as full as they get.
  void start();
  /// Takes new connections from now on.
  void listen();
  /// Refuses what waits and whatever comes; clients keep what they have.
  void drain();
  /// Sessions that hold memory or may still ask for some.
  std::size_t session_count();
  /// Puts another policy in force. Errors  as core::Broker::apply.
  Result<void> apply(core::Policy policy, std::string cause = {});
  /// From now on the members of this group may administer; none: root alone.
  void set_admin_gid(std::optional<std::uint32_t> gid);

  void post(Work work) override;
  void after(std::function<void()> done) override { after_.push_back(std::move(done)); }
  std::optional<SessionId> session_of(std::string_view token) const override;
  std::optional<core::Caller> caller_of(std::string_view token) const override;
  RequestId grow(SessionId session, std::span<const core::Broker::Part> parts, core::Duration wait,
                 GrowAnswer answer) override;
  void cancel(RequestId request) override;
  std::optional<ClientFigures> client_figures(SessionId session, core::DeviceIndex device,
                                              Bytes charged) const override;
  void watch(std::shared_ptr<core::EventWatcher> watcher, std::optional<core::WallTime> since) override;
  void unwatch(const core::EventWatcher& watcher) override { events_.unwatch(watcher); }

 private:
  struct Client {
    std::shared_ptr<Lane> lane;
    SharedPages pages;
    Bell bell;
    std::string token;
  };
  struct Pending {
    SessionId session;
    GrowAnswer answer;
  };

  explicit Loop(Options options);

  void hello(const std::shared_ptr<Lane>& lane, const v1::Hello& hello) override;
  void accepted(Lane& lane, GrantId grant) override;
  void spent(Lane& lane, std::uint32_t device) override;
  void complain(const std::string& words) override { complaints_.warn(words); }
  void closed(const std::shared_ptr<Lane>& lane, bool goodbye) override;
  void process_exited(const std::shared_ptr<Lane>& lane) override;

  Result<void> welcome(const std::shared_ptr<Lane>& lane, const v1::Hello& hello);
  Result<void> open_session(const std::shared_ptr<Lane>& lane, const v1::Hello& hello);
  Result<void> open_control(const std::shared_ptr<Lane>& lane);
  // Has `work` done, then everything that follows from it. Work inside work joins the outer one.
  void run(const Work& work);
  // Has `work` done by the thread; waits for it.
  void run_and_wait(const Work& work);
  void do_effects();
  void do_effect(core::RunJob& effect);
  void do_effect(core::SendOffer& effect);
  void do_effect(core::AnswerGrow& effect);
  void do_effect(core::RingBell& effect);
  void do_effect(core::SignalSession& effect);
  void do_effect(core::SignalForeigner& effect);
  void do_effect(core::ForgetSession& effect);
  void end_requests_of(SessionId session);
  void publish(SessionId session);
  void publish_soon();
  void arm_deadline();

  std::string driver_folder_;
  std::optional<std::uint32_t> admin_gid_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_guard_;
  core::Broker broker_;
  std::unique_ptr<Extents> extents_;
  LaneListener listener_;
  Complaints complaints_;
  EventLog events_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer broadcast_;
  bool broadcast_armed_ = false;
  std::uint64_t broadcast_revision_ = 0;  ///< of the figures that every page shows at least
  bool running_ = false;
  std::vector<std::function<void()>> after_;  ///< to be called when the pages have been published
  std::promise<void>* settled_ = nullptr;     ///< fulfilled when the pools are full
  IdSource<RequestId> request_ids_;
  std::unordered_map<SessionId, Client> clients_;
  std::unordered_map<std::string, SessionId> tokens_;
  ControlLanes controls_;
  std::unordered_map<RequestId, Pending> pending_;
  std::thread thread_;
};

}  // namespace gpumem::host
