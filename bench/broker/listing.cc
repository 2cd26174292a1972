#include <benchmark/benchmark.h>
#include <grpcpp/create_channel.h>

#include <atomic>
#include <thread>

#include "bench/must.h"
#include "bench/roles.h"
#include "bench/samples.h"
#include "bench/world.h"
#include "client/lane/lane.h"
#include "proto/lane.h"

// The effect of a listing of many sessions on another session's calls. Rounds without and with the listing
// take turns, so that the machine's own ups and downs fall on both.

namespace gpumem::bench {
namespace {

constexpr std::size_t kSessions = 2000;
constexpr std::size_t kSlices = 64;
constexpr std::size_t kProcesses = 4;
constexpr int kPingsARound = 200;
constexpr auto kPause = std::chrono::milliseconds(1);

void measure_round(Session& session, Samples& samples) {
  for (int i = 0; i < kPingsARound; ++i) {
    std::this_thread::sleep_for(kPause);
    samples.add(timed([&] { must(session.ping(), "ping"); }));
  }
}

void tell(benchmark::State& state, const Samples& alone, const Samples& beside) {
  for (const auto& [name, share] : {std::pair{"p50", 0.5}, {"p99", 0.99}, {"max", 1.0}}) {
    state.counters[std::string("alone_") + name + "_us"] = alone.quantile_us(share);
    state.counters[std::string("beside_") + name + "_us"] = beside.quantile_us(share);
    state.counters[std::string("added_") + name + "_us"] =
        beside.quantile_us(share) - alone.quantile_us(share);
  }
}

void listing(benchmark::State& state, World& world) {
  std::vector<Process> holders;
  for (std::size_t i = 0; i < kProcesses; ++i) {
    holders.push_back(Process::start_role(
        "hold_slices",
        {world.broker.folder(), std::to_string(kSessions / kProcesses), std::to_string(kSlices)}));
  }
  for (Process& holder : holders) holder.await_ready();
  Session session = world.broker.connect();
  must(session.ping(), "ping");
  Process lister = Process::start_role("list_sessions", {world.broker.folder()});
  lister.await_ready();
  Samples alone, beside;
  double listed = 0, listing_seconds = 0;
  for (auto _ : state) {
    measure_round(session, alone);
    lister.command('s');
    const auto start = Clock::now();
    measure_round(session, beside);
    lister.command('p');
    const double took = seconds(Clock::now() - start);
    listed += static_cast<double>(lister.receive_number());
    listing_seconds += took;
    state.SetIterationTime(took / kPingsARound);
  }
  tell(state, alone, beside);
  state.counters["slices_listed_per_second"] = listed / listing_seconds;
}

// ---- The processes beside it ----

void open_slices(client::Lane& lane, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    lane::OpenSlice body{0, mebibytes(2).count, {}};
    body.label = decltype(body.label)::of("slice " + std::to_string(i));
    must(lane.call<lane::SliceOpened>(body), "open a slice");
  }
}

// The slices of every session, page by page; one after the other, until told to stop.
class Lister {
 public:
  explicit Lister(const std::string& folder)
      : monitor_(v1::Monitor::NewStub(grpc::CreateChannel("unix:" + folder + "/" + kApiSocketName,
                                                          grpc::InsecureChannelCredentials()))) {}

  void start() {
    stop_ = false;
    thread_ = std::jthread([this] {
      while (!stop_) page();
    });
  }
  /// How many slices it has listed since the start.
  std::uint64_t stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return std::exchange(slices_, 0);
  }

 private:
  void page() {
    grpc::ClientContext context;
    v1::ListSessionsResponse response;
    const grpc::Status status = monitor_->ListSessions(&context, request_, &response);
    require(status.ok(), "list sessions", status.error_message());
    for (const v1::SessionInfo& one : response.sessions())
      slices_ += static_cast<std::uint64_t>(one.slices_size());
    request_.set_page_token(response.next_page_token());
  }

  std::unique_ptr<v1::Monitor::Stub> monitor_;
  v1::ListSessionsRequest request_;
  std::uint64_t slices_ = 0;
  std::atomic<bool> stop_{false};
  std::jthread thread_;
};

}  // namespace

// Without the library's session, which would open the driver and start a thread for each.
void hold_slices(const RoleArguments& arguments) {
  const std::filesystem::path folder = arguments.at(0);
  std::vector<std::unique_ptr<client::Lane>> lanes;
  for (std::size_t i = std::stoul(arguments.at(1)); i > 0; --i) {
    lanes.push_back(
        must(client::Lane::connect(folder / kLaneSocketName, std::chrono::seconds(10)), "connect"));
    must(lanes.back()->greet("listed"), "greet");
    open_slices(*lanes.back(), std::stoul(arguments.at(2)));
  }
  announce_ready();
  while (next_command() != '\0') continue;
}

void list_sessions(const RoleArguments& arguments) {
  Lister lister(arguments.at(0));
  announce_ready();
  while (const char what = next_command()) {
    std::uint64_t listed = 0;
    if (what == 's')
      lister.start();
    else
      listed = lister.stop();
    announce_ready();
    if (what == 'p') tell_number(listed);
  }
}

void register_listing(World& world) {
  benchmark::RegisterBenchmark("listing", listing, std::ref(world))
      ->Iterations(20)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace gpumem::bench
