// A client that does at random what no client should, until it is ended. Standard output: a line for each
// act, once it has come to what it was for.
//   hostile_client SEED NICE TENANT OTHER     in the runtime folder $GPUMEM_RUNTIME_DIR, and so much nicer
//   than its parent; TENANT is its own, OTHER is another's
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <optional>
#include <random>
#include <thread>

#include "client/cli/monitor/monitor.h"
#include "proto/lane.h"
#include "tests/hostile/clients/lingering_socket.h"
#include "tests/hostile/clients/silent_clients.h"
#include "tests/support/client/test_client.h"
#include "tests/support/lanes/frame_lane.h"

namespace gpumem::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLoop{200};  // how long one act asks in a loop
constexpr int kAskers = 8;                       // at once
constexpr int kIdle = 32;                        // connections opened at once
constexpr int kMostLingering = 48;               // of one listener, which accepts nobody
constexpr std::size_t kMostKept = 4;
constexpr int kFrames = 256;              // that are sent before an answer is read
constexpr int kSessions = 64;             // of one act
constexpr int kDenials = 16;              // of each of them
constexpr int kRegions = 1000;            // of one process
constexpr int kUnreadMaps = 64;           // of one session
constexpr int kJointRequests = 64;        // of one session: as many as may wait
constexpr std::uint64_t kMostTaken = 12;  // MiB at once: all clients together fit beside the pool

class HostileClient {
 public:
  HostileClient(std::string folder, unsigned seed, std::string tenant, std::string other)
      : folder_(std::move(folder)), tenant_(std::move(tenant)), other_(std::move(other)), random_(seed) {}

  [[noreturn]] void run() {
    for (;;) {
      const Act& act = kActs[random_() % std::size(kActs)];
      const bool done = (this->*act.does)();
      const std::string line = std::string(done ? "act: " : "in vain: ") + act.name + "\n";
      if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) ::_exit(1);
    }
  }

 private:
  struct Act {
    const char* name;
    bool (HostileClient::*does)();  // whether it came to what it was for
  };
  static const Act kActs[20];

  bool by_chance() { return random_() % 2 == 0; }
  Bytes some(std::uint64_t most_mebibytes) { return mebibytes(1 + random_() % most_mebibytes); }
  template <class One>
  static bool keep(std::deque<One>& kept, One one) {
    kept.push_back(std::move(one));
    if (kept.size() > kMostKept) kept.pop_front();
    return true;
  }
  bool keep(std::unique_ptr<Holdings> one) { return keep(kept_, std::move(one)); }
  std::unique_ptr<Holdings> holdings() const {
    auto one = std::make_unique<Holdings>();
    one->runtime_folder = folder_;
    return one;
  }
  static bool done(Holdings& holdings, const Json& command) {
    return carry_out(command, holdings).json.at("ok").get<bool>();
  }
  template <class Work>
  static void loop(Work&& work) {
    for (const auto end = Clock::now() + kLoop; Clock::now() < end;) work();
  }

  // ---- Descriptors whose close blocks ----

  void send_lingering(int socket) {
    if (sent_++ % kMostLingering == 0) lingering_ = std::make_unique<LingeringSockets>();
    static_cast<void>(lingering_->send_one(socket));
  }
  bool send_on_new_lane() {
    const RawLane lane(folder_);
    send_lingering(lane.socket());
    return true;
  }
  bool send_on_greeted_lane() {
    FrameLane lane(folder_);
    const bool greeted = lane.is_welcomed();
    send_lingering(lane.raw().socket());
    return greeted;
  }
  bool send_on_api() {
    const UniqueFd stream = connect_to_stream(folder_ + "/" + kApiSocketName);
    if (by_chance()) begin_http2(stream.get());
    send_lingering(stream.get());
    return true;
  }

  // ---- Memory that does not come back ----

  // A session made by hand that has mapped what it was lent. It answers no request.
  std::unique_ptr<Holdings> borrower() {
    auto one = holdings();
    done(*one, {{"do", "raw_connect"}});
    if (one->raw.welcome.session == 0) return nullptr;
    if (!done(*one, {{"do", "raw_grow"}, {"bytes", some(64).count}}) || !done(*one, {{"do", "raw_map"}}))
      return nullptr;
    return one;
  }
  bool keep_what_is_asked_back() {
    auto one = borrower();
    return one && keep(std::move(one));
  }
  bool return_but_keep() {
    auto one = borrower();
    return one && done(*one, {{"do", "raw_return"}}) && keep(std::move(one));
  }
  bool leave_but_keep() {
    auto one = borrower();
    return one && done(*one, {{"do", "raw_leave"}, {"goodbye", by_chance()}}) && keep(std::move(one));
  }
  // Of gRPC: it has mapped nothing, reads nothing and gives nothing back.
  bool hold_by_stream() {
    auto one = holdings();
    return done(*one, {{"do", "stream_open"}}) &&
           done(*one, {{"do", "stream_grow"}, {"bytes", some(64).count}}) && keep(std::move(one));
  }
  // By the library, which is honest: what others keep is asked back for such as this one.
  bool claim() {
    auto one = holdings();
    if (!done(*one, {{"do", "connect"}, {"label", "claim"}}) ||
        !done(*one, {{"do", "open"}, {"slice", "a"}, {"limit", 0}, {"device", ""}}))
      return false;
    const bool granted = done(
        *one, {{"do", "grow"}, {"slice", "a"}, {"target", some(128).count}, {"wait_ms", random_() % 500}});
    if (by_chance()) keep(std::move(one));
    return granted;
  }

  // ---- Frames ----

  // As many requests for both devices at once as may wait; what is granted is neither read nor accepted.
  bool ask_for_several_devices() {
    auto lane = std::make_unique<FrameLane>(folder_);
    if (lane->greet().count < 2) return false;
    const std::uint64_t first = lane->open_slice();
    const auto second = lane->ask(lane::OpenSlice{1, 0, {}}).as<lane::SliceOpened>().slice;
    for (int i = 0; i < kJointRequests; ++i) {
      auto joint = lane->growth(first, some(128), std::chrono::minutes(1));
      joint.parts[joint.count++] = {second, some(128).count, 0, 0};
      lane->send(joint);
    }
    bool waits = false;
    for (const std::uint64_t last = lane->send(lane::Ping{});;) {
      const FrameLane::Answer answer = lane->receive();
      waits = waits || answer.is(lane::Kind::kWaiting);
      if (answer.header.request == last) {
        if (random_() % 4 == 0) keep(lanes_, std::move(lane));  // leaves a part of the limit to other acts
        return waits;
      }
      if (answer.header.request == 0) return false;
    }
  }
  bool send_frames_in_a_row() {
    FrameLane lane(folder_);
    if (lane.greet().count == 0) return false;
    for (int i = 0; i < kFrames; ++i) lane.send(lane::Ping{});
    for (int i = 0; i < kFrames; ++i)
      if (!lane.receive().is(lane::Kind::kDone)) return false;
    return true;
  }

  // As many frames as one user's sessions hold, and no answer is read before all are sent.
  bool ask_in_vain_in_many_sessions() {
    std::vector<FrameLane> lanes;
    for (int i = 0; i < kSessions; ++i) {
      FrameLane& lane = lanes.emplace_back(folder_);
      if (lane.greet().count == 0) return false;
      const std::uint64_t slice = lane.open_slice();
      for (int k = 0; k < kDenials; ++k) lane.send(lane.growth(slice, mebibytes(1000)));
    }
    bool denied = true;
    for (FrameLane& lane : lanes)
      for (int k = 0; k < kDenials; ++k) denied = lane.receive().is(lane::Kind::kFailed) && denied;
    return denied;
  }
  // Of memory that it is lent. None: it gets none.
  std::optional<lane::Publish> region_of(FrameLane& lane) {
    if (lane.greet().count == 0) return std::nullopt;
    const std::uint64_t slice = lane.open_slice();
    const FrameLane::Answer answer = lane.grow(slice, mebibytes(2));
    if (!answer.is(lane::Kind::kGranted)) return std::nullopt;
    const auto granted = answer.as<lane::Granted>();
    lane.send(lane::Accept{granted.grant});
    lane::Publish region{};
    region.slice = slice;
    region.count = 1;
    region.leases[0] = granted.leases[0].lease;
    return region;
  }
  bool publish_very_many_and_leave() {
    FrameLane lane(folder_);
    auto region = region_of(lane);
    for (int i = 0; region && i < kRegions; ++i) {
      region->name = decltype(region->name)::of(std::to_string(i));
      if (!lane.ask(*region).is(lane::Kind::kPublished)) return false;
    }
    return region.has_value();
  }
  bool map_without_reading() {
    auto lane = std::make_unique<FrameLane>(folder_);
    auto region = region_of(*lane);
    if (!region) return false;
    region->name = decltype(region->name)::of("unread");
    if (!lane->ask(*region).is(lane::Kind::kPublished)) return false;
    lane::MapRegion map{};
    map.name = region->name;
    map.device = lane::kAnyDevice;
    for (int i = 0; i < kUnreadMaps; ++i) lane->send(map);
    return keep(lanes_, std::move(lane));
  }

  // ---- Declarations ----

  std::unique_ptr<Holdings> session() {
    auto one = holdings();
    return done(*one, {{"do", "connect"}, {"label", "hostile"}}) ? std::move(one) : nullptr;
  }
  bool declare(Holdings& one, Bytes bytes) {
    const auto usage = one.session->usage();
    return usage && done(one, {{"do", "charge"}, {"device", usage->at(0).device}, {"bytes", bytes.count}});
  }
  bool declare_what_is_not_there() {
    auto one = session();
    if (!one || !declare(*one, some(1024))) return false;
    return by_chance() ? keep(std::move(one)) : true;
  }
  bool take_and_declare() {
    auto one = session();
    const Bytes bytes = some(kMostTaken);
    if (!one || !done(*one, {{"do", "take"}, {"bytes", bytes.count}})) return false;
    const bool declared = declare(*one, bytes);
    return keep(std::move(one)) && declared;
  }

  // ---- Questions ----

  bool ask_for_looks() {
    std::atomic<int> looks = 0;
    std::vector<std::jthread> askers;
    for (int i = 0; i < kAskers; ++i) {
      askers.emplace_back([&] {
        auto monitor = cli::Monitor::connect(folder_);
        if (monitor) loop([&] { looks += monitor->reconcile(true) ? 1 : 0; });
      });
    }
    askers.clear();
    return looks != 0;
  }
  // How often it was answered so; nothing if the listings were refused.
  int ask_why(const std::string& tenant, std::optional<Code> refusal) {
    auto monitor = cli::Monitor::connect(folder_);
    if (!monitor) return 0;
    v1::ExplainRequest why;
    why.set_tenant(tenant);
    int answered = 0;
    bool listed = true;
    loop([&] {
      listed = monitor->sessions() && monitor->tenants() && listed;
      const auto explained = monitor->explain(why);
      const auto refused = explained ? std::optional<Code>() : explained.error().code;
      answered += refused == refusal ? 1 : 0;
    });
    return listed ? answered : 0;
  }
  bool list_and_ask_why() { return ask_why(tenant_, {}) != 0; }
  bool ask_why_of_another() { return ask_why(other_, Code::kPermissionDenied) != 0; }

  // ---- Connections and files ----

  bool hold_the_lock() {
    UniqueFd lock(::open((folder_ + "/private/gpumemd.lock").c_str(), O_RDONLY | O_CLOEXEC));
    if (!lock.valid()) return errno == EACCES;
    ::flock(lock.get(), LOCK_EX | LOCK_NB);
    held_lock_ = std::move(lock);
    return false;
  }
  bool open_idle_connections() {
    std::vector<UniqueFd> set;
    for (int i = 0; i < kIdle; ++i) {
      set.push_back(connect_to_stream(folder_ + "/" + kApiSocketName));
      if (by_chance()) begin_http2(set.back().get());
    }
    return keep(idle_, std::move(set));
  }

  std::string folder_;
  std::string tenant_;
  std::string other_;
  std::mt19937 random_;
  std::unique_ptr<LingeringSockets> lingering_;
  int sent_ = 0;
  std::deque<std::unique_ptr<Holdings>> kept_;
  std::deque<std::unique_ptr<FrameLane>> lanes_;
  std::deque<std::vector<UniqueFd>> idle_;
  UniqueFd held_lock_;
};

const HostileClient::Act HostileClient::kActs[] = {
    {"send on a new lane", &HostileClient::send_on_new_lane},
    {"send on a greeted lane", &HostileClient::send_on_greeted_lane},
    {"send on api.sock", &HostileClient::send_on_api},
    {"keep what is asked back", &HostileClient::keep_what_is_asked_back},
    {"return but keep", &HostileClient::return_but_keep},
    {"leave but keep", &HostileClient::leave_but_keep},
    {"hold by stream", &HostileClient::hold_by_stream},
    {"claim", &HostileClient::claim},
    {"ask for several devices", &HostileClient::ask_for_several_devices},
    {"send frames in a row", &HostileClient::send_frames_in_a_row},
    {"ask in vain in many sessions", &HostileClient::ask_in_vain_in_many_sessions},
    {"publish very many regions and leave", &HostileClient::publish_very_many_and_leave},
    {"map without reading", &HostileClient::map_without_reading},
    {"declare what is not there", &HostileClient::declare_what_is_not_there},
    {"take and declare", &HostileClient::take_and_declare},
    {"ask for looks", &HostileClient::ask_for_looks},
    {"list and ask why", &HostileClient::list_and_ask_why},
    {"ask why of another", &HostileClient::ask_why_of_another},
    {"hold the lock", &HostileClient::hold_the_lock},
    {"open idle connections", &HostileClient::open_idle_connections},
};

}  // namespace
}  // namespace gpumem::test

int main(int argc, char** argv) {
  const char* folder = std::getenv("GPUMEM_RUNTIME_DIR");
  if (folder == nullptr || argc != 5) return 2;
  if (::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + std::stoi(argv[2])) != 0) return 2;
  gpumem::test::HostileClient(folder, static_cast<unsigned>(std::stoul(argv[1])), argv[3], argv[4]).run();
}
