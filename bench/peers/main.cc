// gpumem_peers_bench: gpumem's allocator, as programs in C meet it, beside those of other libraries on the
// same driver, in one run and in turns.
//   --peer NAME=FILE[:PERCENT]  an allocator of the library FILE (peer.h, set_up.sh), which takes so much of
//                               the free memory at its beginning; may come again. Without it: gpumem alone.
//   --small                     everything once, little of it, as a test
// and Google Benchmark's own flags.
#include <benchmark/benchmark.h>
#include <cuda.h>

#include <array>
#include <functional>
#include <memory>
#include <thread>

#include "bench/allocator/measure.h"
#include "bench/allocator/register.h"
#include "bench/allocator/replay.h"
#include "bench/allocator/traces/workloads.h"
#include "bench/broker/broker.h"
#include "bench/must.h"
#include "bench/peers/peer.h"
#include "bench/report.h"
#include "bench/shim/library.h"
#include "gpumem.h"

namespace gpumem::bench {
namespace {

/// gpumem's broker lends a part, the others take from the rest. No trace needs more, whatever is lost to
/// fragmentation. The broker would charge this process for what the others take, if it looked.
const BrokerOptions kDevice{.device = "1x640GiB", .settings = "reserve = \"128GiB\"\nreconcile_seconds = 0"};
constexpr std::size_t kHeld = 8;
constexpr auto kIdle = std::chrono::seconds(3);  ///< more than allocators keep unused memory for

struct Other {
  std::string name, file;
  int percent = 0;
};

struct Options {
  bool small = false;
  std::vector<Other> others{};
  std::size_t rounds() const { return small ? 1 : 5; }
  /// Of a round. Short, since programs beside this one then slow down few of them; but threads do not begin
  /// at one moment.
  std::size_t turns() const { return small ? 1 : 11; }
  std::chrono::nanoseconds turn() const { return std::chrono::microseconds(small ? 100 : 2'000); }
};

/// The driver, whose primary context all threads use.
class Device {
 public:
  explicit Device(const std::string& file) : driver_(file) {
    require(driver_.find<decltype(::cuInit)>("cuInit")(0) == CUDA_SUCCESS &&
                driver_.find<decltype(::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(
                    &context_, 0) == CUDA_SUCCESS,
            "the driver does not start", file);
    enter();
  }
  void enter() const {
    require(driver_.find<decltype(::cuCtxSetCurrent)>("cuCtxSetCurrent")(context_) == CUDA_SUCCESS,
            "cuCtxSetCurrent");
  }
  /// Stays as long as the process.
  CUstream stream() const {
    CUstream made = nullptr;
    require(driver_.find<decltype(::cuStreamCreate)>("cuStreamCreate")(&made, CU_STREAM_NON_BLOCKING) ==
                CUDA_SUCCESS,
            "cuStreamCreate");
    return made;
  }

 private:
  Library driver_;
  CUcontext context_ = nullptr;
};

/// An allocator under measurement.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual std::uint64_t allocate(Bytes bytes, CUstream stream) = 0;
  virtual void deallocate(std::uint64_t address, Bytes bytes, CUstream stream) = 0;
  /// Memory of the device that the allocator has now, and the most that it has had.
  virtual Bytes kept() = 0;
  virtual Bytes peak() = 0;
};

void require_ok(gpumem_status status, const char* what) {
  if (status != GPUMEM_OK) give_up(what, gpumem_last_error());
}

class Gpumem final : public Peer {
 public:
  explicit Gpumem(gpumem_session* session) {
    require_ok(gpumem_allocator_open(session, nullptr, &allocator_), "open an allocator");
  }
  ~Gpumem() override { gpumem_allocator_close(allocator_); }
  std::uint64_t allocate(Bytes bytes, CUstream stream) override {
    gpumem_address address = 0;
    require_ok(gpumem_allocate(allocator_, bytes.count, stream, &address), "allocate");
    return address;
  }
  void deallocate(std::uint64_t address, Bytes bytes, CUstream stream) override {
    require_ok(gpumem_deallocate(allocator_, address, bytes.count, stream), "deallocate");
  }
  Bytes kept() override { return {statistics().committed}; }
  Bytes peak() override { return {statistics().peak_committed}; }

 private:
  gpumem_statistics statistics() {
    gpumem_statistics found = GPUMEM_STATISTICS_INIT;
    require_ok(gpumem_allocator_statistics(allocator_, &found), "statistics");
    return found;
  }
  gpumem_allocator* allocator_ = nullptr;
};

/// An allocator of a library with the functions of peer.h. None of them gives memory back.
class Pool final : public Peer {
 public:
  Pool(const Library& library, int percent)
      : close_(library.find<decltype(peer_close)>("peer_close")),
        allocate_(library.find<decltype(peer_allocate)>("peer_allocate")),
        deallocate_(library.find<decltype(peer_deallocate)>("peer_deallocate")),
        kept_(library.find<decltype(peer_kept)>("peer_kept")),
        pool_(library.find<decltype(peer_open)>("peer_open")(percent)) {
    require(pool_ != nullptr, "a peer's pool", "is not to be had");
  }
  ~Pool() override { close_(pool_); }
  std::uint64_t allocate(Bytes bytes, CUstream stream) override {
    void* const block = allocate_(pool_, bytes.count, stream);
    require(block != nullptr, "a peer's pool", "is out of memory");
    return reinterpret_cast<std::uint64_t>(block);
  }
  void deallocate(std::uint64_t address, Bytes bytes, CUstream stream) override {
    deallocate_(pool_, reinterpret_cast<void*>(address), bytes.count, stream);
  }
  Bytes kept() override { return {kept_(pool_)}; }
  Bytes peak() override { return kept(); }

 private:
  decltype(peer_close)* close_;
  decltype(peer_allocate)* allocate_;
  decltype(peer_deallocate)* deallocate_;
  decltype(peer_kept)* kept_;
  void* pool_;
};

struct Kind {
  std::string name;
  std::function<std::unique_ptr<Peer>()> open;
};

/// What all benchmarks of a run share.
struct PeersWorld {
  explicit PeersWorld(const Options& chosen) : options(chosen), device(driver_file()) {
    gpumem_session_options where = GPUMEM_SESSION_OPTIONS_INIT;
    const std::string folder = broker.folder();
    where.runtime_folder = folder.c_str();
    require_ok(gpumem_session_connect(&where, &session), "connect");
    kinds.push_back({"gpumem", [this] { return std::make_unique<Gpumem>(session); }});
    for (const Other& other : options.others) {
      // Their libraries bring others of their own, which this program has in other versions.
      const Library library(other.file, RTLD_DEEPBIND);
      kinds.push_back({other.name, [library, percent = other.percent] {
                         return std::make_unique<Pool>(library, percent);
                       }});
    }
  }
  ~PeersWorld() { gpumem_session_close(session); }
  std::string driver_file() const {
    const char* const named = std::getenv("GPUMEM_DRIVER_DIR");
    const std::string folder = named != nullptr ? named : broker.folder() + "/driver";
    return folder.empty() ? "libcuda.so.1" : folder + "/libcuda.so.1";
  }
  /// Opened anew. gpumem's comes first.
  std::vector<std::unique_ptr<Peer>> peers() const {
    broker.await_all_free();
    std::vector<std::unique_ptr<Peer>> all;
    for (const Kind& kind : kinds) all.push_back(kind.open());
    return all;
  }
  /// As many streams of their own as that, the same ones each time; the default one first.
  std::vector<CUstream> streams(std::size_t count) {
    if (made.empty()) made.push_back(nullptr);
    while (made.size() <= count) made.push_back(device.stream());
    return made;
  }

  const Options options;
  const Broker broker{kDevice};
  const Device device;
  gpumem_session* session = nullptr;
  std::vector<Kind> kinds;
  std::vector<CUstream> made;
};

/// The times of each allocator, round by round, and the counters of them: NAME_ns, and `per_NAME`, the median
/// of gpumem's time divided by that of another in the same round.
class Rounds {
 public:
  explicit Rounds(const std::vector<Kind>& kinds) : kinds_(kinds), times_(kinds.size()) {}
  void add(std::size_t kind, double ns) { times_[kind].push_back(ns); }
  double report(benchmark::State& state, const std::string& prefix) const {
    for (std::size_t i = 0; i < times_.size(); ++i) {
      state.counters[prefix + kinds_[i].name + "_ns"] = median(times_[i]);
      std::vector<double> ratios;
      for (std::size_t round = 0; round < times_[i].size(); ++round)
        ratios.push_back(times_[0][round] / times_[i][round]);
      if (i > 0) state.counters[prefix + "per_" + kinds_[i].name] = median(ratios);
    }
    return median(times_[0]);
  }

 private:
  const std::vector<Kind>& kinds_;
  std::vector<std::vector<double>> times_;
};

// ---- Pairs ----

struct Setting {
  Bytes bytes;
  std::size_t threads = 1;
  bool on_own_stream = true;
};

double pair_ns(PeersWorld& world, Peer& peer, const Setting& setting, std::size_t pairs) {
  const auto streams = world.streams(setting.threads);
  const auto took = at_once(setting.threads, [&](std::size_t thread) {
    world.device.enter();
    const CUstream stream = setting.on_own_stream ? streams[1 + thread] : nullptr;
    std::array<std::uint64_t, kHeld> held;
    for (std::uint64_t& address : held) address = peer.allocate(setting.bytes, stream);
    for (std::size_t i = 0; i < pairs; ++i)
      peer.deallocate(peer.allocate(setting.bytes, stream), setting.bytes, stream);
    for (const std::uint64_t address : held) peer.deallocate(address, setting.bytes, stream);
  });
  return static_cast<double>(took.count()) / static_cast<double>(pairs);
}

void pairs(benchmark::State& state, PeersWorld& world, const Setting& setting) {
  for (auto _ : state) {
    const auto peers = world.peers();
    std::vector<std::size_t> counts;
    for (const auto& peer : peers) {
      const double ns = std::max(1.0, pair_ns(world, *peer, setting, 2'000));
      counts.push_back(std::max<std::size_t>(
          500, static_cast<std::size_t>(static_cast<double>(world.options.turn().count()) / ns)));
    }
    Rounds rounds(world.kinds);
    for (std::size_t round = 0; round < world.options.rounds(); ++round) {
      std::vector<std::vector<double>> taken(peers.size());
      for (std::size_t turn = 0; turn < world.options.turns(); ++turn)
        for (std::size_t i = 0; i < peers.size(); ++i)
          taken[i].push_back(pair_ns(world, *peers[i], setting, counts[i]));
      for (std::size_t i = 0; i < peers.size(); ++i) rounds.add(i, median(taken[i]));
    }
    state.SetIterationTime(rounds.report(state, "") * 1e-9);
  }
}

// ---- Whole programs ----

/// A peer in the shape that replays want.
struct OnStreams {
  Peer& peer;
  const std::vector<CUstream>& streams;
  std::uint64_t allocate(Bytes bytes, std::uint32_t stream) { return peer.allocate(bytes, streams[stream]); }
  void deallocate(std::uint64_t address, Bytes bytes, std::uint32_t stream) {
    peer.deallocate(address, bytes, streams[stream]);
  }
};

void replays(benchmark::State& state, PeersWorld& world, const Workload& workload) {
  const AllocationTrace trace = workload.make(1);
  const TraceFigures figures = figures_of(trace);
  const auto streams = world.streams(figures.streams);
  const auto by_peak = [&](Bytes bytes) {
    return static_cast<double>(bytes.count) / static_cast<double>(figures.peak.count);
  };
  for (auto _ : state) {
    Rounds first(world.kinds), second(world.kinds);
    for (std::size_t round = 0; round < world.options.rounds(); ++round) {
      const auto peers = world.peers();
      for (std::size_t i = 0; i < peers.size(); ++i) {
        OnStreams allocator{*peers[i], streams};
        for (Rounds* const times : {&first, &second})
          times->add(i, static_cast<double>(time_replay(trace, allocator).count()) /
                            static_cast<double>(trace.calls.size()));
      }
      if (round + 1 < world.options.rounds()) continue;
      std::this_thread::sleep_for(kIdle);
      for (std::size_t i = 0; i < peers.size(); ++i) {
        const std::string name = world.kinds[i].name;
        state.counters["peak_by_use_" + name] = by_peak(peers[i]->peak());
        state.counters["kept_by_use_" + name] = by_peak(peers[i]->kept());
      }
    }
    first.report(state, "first_");
    state.SetIterationTime(second.report(state, "second_") * 1e-9);
  }
}

void register_all(PeersWorld& world) {
  const auto add = [](const std::string& name, auto... arguments) {
    run_once(benchmark::RegisterBenchmark(name.c_str(), arguments...), benchmark::kNanosecond);
  };
  for (const bool own : {true, false})
    for (const std::size_t threads : {1UL, 2UL})
      for (const std::uint64_t size : {256ULL, 4ULL << 10, 64ULL << 10, 1ULL << 20, 16ULL << 20, 64ULL << 20})
        add(std::string("pair/") + (own ? "own" : "default") + "/threads:" + std::to_string(threads) +
                "/size:" + std::to_string(size),
            pairs, std::ref(world), Setting{{size}, threads, own});
  for (const Workload& workload : workloads())
    if (!world.options.small || workload.peak_most < gibibytes(1))
      add(std::string("replay/") + workload.name, replays, std::ref(world), std::cref(workload));
}

/// NAME=FILE[:PERCENT]
Other other_of(const std::string& words) {
  const auto equals = words.find('='), colon = words.find(':');
  require(equals != std::string::npos, "--peer", "wants NAME=FILE[:PERCENT], not " + words);
  const int percent = colon == std::string::npos ? 0 : std::atoi(words.c_str() + colon + 1);
  return {words.substr(0, equals), words.substr(equals + 1, colon - equals - 1), percent};
}

int run(int argc, char** argv) {
  std::vector<char*> words(argv, argv + argc);
  const OwnFlags own = take_own(words, "--peer");
  Options options{.small = own.small};
  for (const std::string& other : own.values) options.others.push_back(other_of(other));
  const auto to_file = initialize(words);
  if (!to_file) return 1;
  benchmark::AddCustomContext("cpu_model", processor());
  PeersWorld world(options);
  register_all(world);
  run_registered(*to_file);
  return 0;
}

}  // namespace
}  // namespace gpumem::bench

int main(int argc, char** argv) {
  return gpumem::bench::main_of("gpumem_peers_bench", [&] { return gpumem::bench::run(argc, argv); });
}
