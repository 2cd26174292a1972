// A client that does at random what no client should, until it is ended. Standard output: a line for each
// act.
//   hostile_client SEED NICE     in the runtime folder $GPUMEM_RUNTIME_DIR, and so much nicer than its parent
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <random>
#include <thread>

#include "client/cli/monitor.h"
#include "proto/lane.h"
#include "tests/hostile/lingering_socket.h"
#include "tests/hostile/silent_clients.h"
#include "tests/support/test_client.h"

namespace gpumem::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLoop{200};  // how long one act asks in a loop
constexpr int kAskers = 8;                       // at once
constexpr int kIdle = 32;                        // connections opened at once
constexpr int kMostLingering = 48;               // of one listener, which accepts nobody
constexpr std::size_t kMostKept = 4;
constexpr std::uint64_t kMostTaken = 12;  // MiB at once: all clients together fit beside the pool

class HostileClient {
 public:
  HostileClient(std::string folder, unsigned seed) : folder_(std::move(folder)), random_(seed) {}

  [[noreturn]] void run() {
    for (;;) {
      const Act& act = kActs[random_() % std::size(kActs)];
      const std::string line = std::string("act: ") + act.name + "\n";
      if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) ::_exit(1);
      (this->*act.does)();
    }
  }

 private:
  struct Act {
    const char* name;
    void (HostileClient::*does)();
  };
  static const Act kActs[13];

  bool by_chance() { return random_() % 2 == 0; }
  Bytes some(std::uint64_t most_mebibytes) { return mebibytes(1 + random_() % most_mebibytes); }
  void keep(std::unique_ptr<Holdings> one) {
    kept_.push_back(std::move(one));
    if (kept_.size() > kMostKept) kept_.pop_front();
  }
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
  void send_on_new_lane() {
    const RawLane lane(folder_);
    send_lingering(lane.socket());
  }
  void send_on_greeted_lane() {
    RawLane lane(folder_);
    if (lane.send(hello())) static_cast<void>(lane.receive());
    send_lingering(lane.socket());
  }
  void send_on_api() {
    const UniqueFd stream = connect_to_stream(folder_ + "/" + kApiSocketName);
    if (by_chance()) begin_http2(stream.get());
    send_lingering(stream.get());
  }

  // ---- Memory that does not come back ----

  // A session made by hand that has mapped what it was lent. It answers no request.
  std::unique_ptr<Holdings> borrower() {
    auto one = holdings();
    done(*one, {{"do", "raw_connect"}});
    if (one->raw.session->welcome.token().empty()) return nullptr;
    if (!done(*one, {{"do", "raw_grow"}, {"bytes", some(64).count}}) || !done(*one, {{"do", "raw_map"}}))
      return nullptr;
    return one;
  }
  void keep_what_is_asked_back() {
    if (auto one = borrower()) keep(std::move(one));
  }
  void return_but_keep() {
    auto one = borrower();
    if (one && done(*one, {{"do", "raw_return"}})) keep(std::move(one));
  }
  void leave_but_keep() {
    auto one = borrower();
    if (one && done(*one, {{"do", "raw_leave"}, {"goodbye", by_chance()}})) keep(std::move(one));
  }
  // Of gRPC: it has mapped nothing, reads nothing and gives nothing back.
  void hold_by_stream() {
    auto one = holdings();
    if (done(*one, {{"do", "stream_open"}}) && done(*one, {{"do", "stream_grow"}, {"bytes", some(64).count}}))
      keep(std::move(one));
  }
  // By the library, which is honest: what others keep is asked back for such as this one.
  void claim() {
    auto one = holdings();
    if (!done(*one, {{"do", "connect"}, {"label", "claim"}}) ||
        !done(*one, {{"do", "open"}, {"slice", "a"}, {"limit", 0}, {"device", ""}}))
      return;
    done(*one, {{"do", "grow"}, {"slice", "a"}, {"target", some(128).count}, {"wait_ms", random_() % 500}});
    if (by_chance()) keep(std::move(one));
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
  void declare_what_is_not_there() {
    auto one = session();
    if (one && declare(*one, some(1024)) && by_chance()) keep(std::move(one));
  }
  void take_and_declare() {
    auto one = session();
    const Bytes bytes = some(kMostTaken);
    if (!one || !done(*one, {{"do", "take"}, {"bytes", bytes.count}})) return;
    declare(*one, bytes);
    keep(std::move(one));
  }

  // ---- Questions ----

  void ask_for_looks() {
    std::vector<std::jthread> askers;
    for (int i = 0; i < kAskers; ++i) {
      askers.emplace_back([this] {
        auto monitor = cli::Monitor::connect(folder_);
        if (monitor) loop([&] { static_cast<void>(monitor->reconcile(true)); });
      });
    }
  }
  void list_and_ask_why() {
    auto monitor = cli::Monitor::connect(folder_);
    if (!monitor) return;
    v1::ExplainRequest why;
    why.set_tenant("uid:" + std::to_string(::geteuid()));
    loop([&] {
      static_cast<void>(monitor->sessions());
      static_cast<void>(monitor->tenants());
      static_cast<void>(monitor->explain(why));
    });
  }
  void open_idle_connections() {
    std::vector<UniqueFd>& set = idle_.emplace_back();
    for (int i = 0; i < kIdle; ++i) {
      set.push_back(connect_to_stream(folder_ + "/" + kApiSocketName));
      if (by_chance()) begin_http2(set.back().get());
    }
    if (idle_.size() > kMostKept) idle_.pop_front();
  }

  std::string folder_;
  std::mt19937 random_;
  std::unique_ptr<LingeringSockets> lingering_;
  int sent_ = 0;
  std::deque<std::unique_ptr<Holdings>> kept_;
  std::deque<std::vector<UniqueFd>> idle_;
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
    {"declare what is not there", &HostileClient::declare_what_is_not_there},
    {"take and declare", &HostileClient::take_and_declare},
    {"ask for looks", &HostileClient::ask_for_looks},
    {"list and ask why", &HostileClient::list_and_ask_why},
    {"open idle connections", &HostileClient::open_idle_connections},
};

}  // namespace
}  // namespace gpumem::test

int main(int argc, char** argv) {
  const char* folder = std::getenv("GPUMEM_RUNTIME_DIR");
  if (folder == nullptr || argc != 3) return 2;
  if (::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + std::stoi(argv[2])) != 0) return 2;
  gpumem::test::HostileClient(folder, static_cast<unsigned>(std::stoul(argv[1]))).run();
}
