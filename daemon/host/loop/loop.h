#pragma once
#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>

#include "daemon/core/broker/executor.h"
#include "daemon/host/driver/extents.h"
#include "daemon/host/lanes/lane.h"
#include "daemon/host/lanes/session_link.h"
#include "daemon/host/lanes/shared_pages.h"
#include "daemon/host/limits/connection_limits.h"
#include "daemon/host/limits/socket_disposal.h"
#include "daemon/host/limits/unread_descriptors.h"
#include "daemon/host/loop/pending_answers.h"
#include "daemon/host/loop/turns.h"
#include "daemon/host/sockets/peer_listener.h"
#include "daemon/host/state/device_pages.h"
#include "daemon/host/state/event_log.h"
#include "daemon/host/state/journal_writer.h"
#include "daemon/host/state/pending_inventories.h"
#include "daemon/host/state/runtime_folder.h"
#include "daemon/host/system/deadline_timer.h"
#include "daemon/host/system/rate_limited_log.h"
#include "proto/lane/frames.h"

namespace gpumem::host {

/// The core's thread: it decides, serves the lanes, and does what the core wants done. All other threads
/// reach it through the executor.
class Loop final : public core::Executor, public core::PacketSender, private LaneHandler {
 public:
  struct Options {
    core::Policy policy;
    const cuda::Driver* driver = nullptr;
    const cuda::Nvml* nvml = nullptr;  ///< outlives the loop; null: there is none
    std::string driver_folder;         ///< told to clients, so that they open the same driver
    ListeningSocket lane_socket;
    const Administrators* administrators = nullptr;  ///< outlives the loop
    const ApiConnections* connections = nullptr;     ///< of gRPC; outlives the loop
    DescriptorBudget budget = DescriptorBudget::of_process();
    /// Of a host store whose memory the driver allocates: the NUMA nodes that it is on. None: it is files.
    std::optional<std::vector<int>> host_nodes{};
    KernelFeatures kernel;
    /// Where the journal is; empty: nothing is written down.
    std::filesystem::path journal_folder{};
    std::vector<std::string> devices{};        ///< UUIDs of the policy's, for the journal
    std::optional<Journal::Content> before{};  ///< the previous broker's journal
    std::map<LeaseId, KeptDescriptor> kept{};  ///< descriptors of its loans
    const DescriptorStore* store = nullptr;    ///< for descriptors of loans; outlives the loop
    std::unique_ptr<EventHistory> history{};   ///< of the broker before, and for the next; null: none
  };
  /// Errors  kNotFound: a device of the policy that the driver does not show; and as Journal::begin().
  static Result<std::unique_ptr<Loop>> create(Options options);
  /// Ends every lane and joins the threads.
  ~Loop() override;

  /// Starts the thread, and creates the pools; returns when they are as full as they get.
  void start();
  /// Takes new connections from now on. Passes the sessions' packets to `receiver`, which outlives the
  /// thread.
  void listen(core::PacketReceiver& receiver);
  /// Refuses waiting and new requests; clients keep their memory. Returns its descriptors, for a broker that
  /// takes over in this process.
  NamedDescriptors drain();
  /// Sessions that hold memory or may still ask for some.
  std::size_t session_count();
  /// From now on `observer`, which outlives the loop's service or is taken away by null, looks at the devices
  /// when a context has been made.
  void set_observer(core::Observer* observer);
  /// From now on shows monitors what is lent.
  void show(DevicePages pages);
  /// Puts another policy in force. Errors  as core::Broker::apply.
  Result<void> apply(core::Policy policy, std::string cause = {});
  /// Has the subscribers of events judged anew, since rights may have changed. Threads  any.
  void judge_watchers() {
    post([this](core::Broker& broker, core::TimePoint) { events_.judge(broker); });
  }

  void post(Work work) override;
  void post_for(std::optional<int> connection, Work work) override;
  void go_on(SessionId session, Work work) override;
  void after(std::function<void()> done) override { after_.push_back(std::move(done)); }
  Result<void> write_down() override;
  void region_kept(const std::vector<LeaseId>& leases) override;
  std::optional<core::Caller> caller_of(int connection) const override;
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
  std::optional<core::HandleBytes> fabric_handle(ExtentId extent) const override {
    return extents_->fabric_handle(extent);
  }
  std::optional<ClientFigures> client_figures(SessionId session, core::DeviceIndex device,
                                              Bytes charged) const override;
  void watch(std::shared_ptr<core::EventWatcher> watcher, std::optional<core::WallTime> since) override;
  void unwatch(const core::EventWatcher& watcher) override { events_.unwatch(watcher); }
  void send(SessionId session, std::string_view bytes, const core::SentExtents& extents) override;
  bool is_behind(SessionId session) const override;

 private:
  struct Client {
    std::shared_ptr<SessionLink> link;
    Flow flow{};
  };

  explicit Loop(Options options);

  static core::TimePoint now() { return std::chrono::steady_clock::now(); }
  void readable(const std::shared_ptr<Lane>& lane) override;
  void in_turn(const std::shared_ptr<Lane>& lane, std::function<void()> work) override;
  void frame(const std::shared_ptr<Lane>& lane, std::string_view packet) override;
  SentDescriptor descriptor(ExtentId extent, bool read_only, ProcessWatch& client) override {
    return extents_->descriptor(extent, read_only, client);
  }
  void warn(const std::string& words) override { warnings_.warn(words); }
  void closed(const std::shared_ptr<Lane>& lane, bool released) override;
  void process_exited(const std::shared_ptr<Lane>& lane) override;

  PeerListener::Options listening(Options& options);
  void take_in(Connection connection);
  void refuse(Connection connection, const Error& error);
  Result<void> greet(const std::shared_ptr<Lane>& lane, const lane::Incoming& frame);
  static Result<void> check_versions(std::uint16_t oldest, std::uint16_t newest);
  lane::Welcome welcome_of(SessionId session) const;
  void take_over(const Journal::Content& before, std::map<LeaseId, KeptDescriptor>& kept);
  void note_holder(const std::set<LeaseId>& leases, const core::Restored& restored,
                   const ProcessHandle& process);
  void end_grace();
  Result<void> resume(const std::shared_ptr<Lane>& lane, const lane::Incoming& frame);
  Result<void> welcome_back(const std::shared_ptr<Lane>& lane, SessionId session,
                            const core::Inventory& inventory, std::string_view welcome);
  // The broker's ends of what a session of a lane has besides it, and the client's, which it is told of.
  struct Ends {
    SharedPages pages;
    Doorbell doorbell;
    std::array<UniqueFd, 3> descriptors{};
    static Result<Ends> create();
    std::array<int, 3> numbers() const;
    /// Shows how many descriptors the process uses.
    int highest_descriptor() const { return std::max(descriptors[0].get(), descriptors[1].get()); }
  };
  Result<Ends> make_ends(const Lane& lane);
  void make_spare_ends_soon();
  void make_spare_ends();
  // A session of its own for the lane.
  struct Opened {
    SessionId session;
    Ends ends;
  };
  Result<Opened> open_session(const std::shared_ptr<Lane>& lane, const std::string& label,
                              core::CommandJobId job);
  Error no_descriptors() const;
  // Has `work` done in a turn of `flow`. Threads  the loop's.
  void queue(const Flow& flow, Turns::Work work);
  // As queue(). Where nothing waits the work is done at once, not after another look at the sockets. For
  // handlers of the loop.
  void serve(const Flow& flow, Turns::Work work);
  // Has `work` run() in a turn of the broker's. Threads  the loop's.
  void queue_own(Work work);
  // As queue(), on any thread.
  void post_to(const Flow& flow, Work work);
  void take_turns();
  void queue_tick();
  void queue_end(SessionId session, core::SessionEnd end);
  void take_frame(const std::shared_ptr<Lane>& lane);
  // How long the work that is being done has been there.
  core::Duration unread() const;
  // Has `work` done, then everything that follows from it. Work inside work joins the outer one.
  void run(const Work& work);
  // Has `work` done by the thread, in the broker's turn; waits for it.
  void run_and_wait(const Work& work);
  void do_effects();
  void withhold(std::vector<core::Effect>& effects);
  void try_journal_again();
  void do_effect(core::RunJobs& effect);
  void do_effect(core::HurryJob& effect);
  void do_effect(core::SendOffer& effect);
  void do_effect(core::AnswerGrow& effect);
  void do_effect(core::AnswerMap& effect);
  void do_effect(core::RingDoorbell& effect);
  void do_effect(core::SignalSession& effect);
  void do_effect(core::SignalForeignProcess& effect);
  void do_effect(core::ForgetSession& effect);
  void do_effect(core::LookAtDevices& effect);
  void end_requests_of(SessionId session);
  void publish(SessionId session);
  void publish_soon();
  void publish_next();
  void publish_devices();
  void note_missing();

  std::string driver_folder_;
  const bool is_host_of_driver_;
  const Administrators& administrators_;
  const ApiConnections& connections_;
  const DescriptorBudget budget_;
  SocketDisposal disposal_;  // before io_, which may hold the last of a lane
  boost::asio::io_context io_;
  UnreadDescriptors unread_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_guard_;
  core::Broker broker_;
  std::unique_ptr<Extents> extents_;
  SilentConnections silent_;
  PeerListener listener_;
  RateLimitedLog warnings_;
  EventLog events_;
  DeadlineTimer deadline_;
  JournalWriter journal_;
  PendingInventories inventories_;
  boost::asio::steady_timer journal_retry_;
  boost::asio::steady_timer grace_;  ///< for the clients of the broker before
  boost::asio::steady_timer making_ends_;
  std::optional<Ends> spare_ends_;  ///< for the next session, which begins without making them
  boost::asio::steady_timer broadcast_;
  bool broadcast_armed_ = false;
  std::vector<SessionId> to_publish_;     ///< of the broadcast that is under way
  std::uint64_t broadcast_revision_ = 0;  ///< of the figures that every page shows at least
  std::optional<DevicePages> pages_;
  DeviceListing listing_{};                     ///< of the page that is being written
  std::vector<std::uint64_t> pages_revisions_;  ///< by device: of the figures that its page shows
  Turns turns_;
  bool turns_posted_ = false;  ///< take_turns() is on its way
  bool tick_queued_ = false;
  core::TimePoint there_since_ = core::TimePoint::max();  ///< the work that is being done; max: unknown
  bool running_ = false;
  std::vector<std::function<void()>> after_;  ///< to be called when the pages have been published
  std::promise<void>* settled_ = nullptr;     ///< fulfilled when the pools are as full as they get
  std::vector<bool> lacks_memory_;            ///< by device: the log says that its pool is not whole
  IdSource<RequestId> request_ids_;
  std::unordered_map<SessionId, Client> clients_;
  PendingGrowths pending_;
  PendingMaps pending_maps_;
  core::Observer* observer_ = nullptr;
  core::PacketReceiver* receiver_ = nullptr;  ///< once it listens
  std::thread thread_;
};

}  // namespace gpumem::host
