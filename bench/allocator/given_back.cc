#include <set>

#include "bench/allocator/allocators.h"
#include "bench/allocator/register.h"
#include "bench/allocator/replay.h"
#include "bench/allocator/suite.h"
#include "bench/allocator/traces/workloads.h"

// After a burst: the memory still committed when the idle time is over, and the time to give it back under
// pressure.

namespace gpumem::bench {
namespace {

constexpr std::chrono::milliseconds kIdle{2'000};

/// A program that has played a trace through and keeps what the trace leaves.
class Survivor {
 public:
  explicit Survivor(const AllocationTrace& trace) : blocks_(play(trace, allocator_)) {}
  ~Survivor() {
    for (const auto& [address, bytes] : blocks_)
      if (address != 0) allocator_.deallocate(address, bytes, 0);
  }
  Survivor(const Survivor&) = delete;
  Survivor& operator=(const Survivor&) = delete;

  Gpumem& allocator() { return allocator_; }
  Bytes live() const { return total(blocks_); }
  /// The bytes that the blocks would keep committed if every extent had the granularity's size: the least
  /// possible.
  Bytes touched() {
    const std::uint64_t unit = allocator_.backing().properties().granularity.count;
    std::set<std::uint64_t> units;
    for (const auto& [address, bytes] : blocks_) {
      if (address == 0) continue;
      for (std::uint64_t at = address / unit; at <= (address + bytes.count - 1) / unit; ++at)
        units.insert(at);
    }
    return {units.size() * unit};
  }

 private:
  Gpumem allocator_;
  std::vector<LeftBlock> blocks_;
};

double count(Bytes bytes) { return static_cast<double>(bytes.count); }

// Time passes, nothing is asked for.
void idle(benchmark::State& state, AllocationTrace (*make)(std::uint64_t seed)) {
  const AllocationTrace trace = make(1);
  for (auto _ : state) {
    Survivor survivor(trace);
    Gpumem& allocator = survivor.allocator();
    const Bytes before = allocator.committed();
    const auto start = std::chrono::steady_clock::now();
    for (auto later = kIdle / 20; later <= kIdle + kIdle / 20; later += kIdle / 20)
      allocator.engine().background_tick(allocator.now() + later);
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    state.counters["live"] = count(survivor.live());
    state.counters["committed_before"] = count(before);
    state.counters["committed_after"] = count(allocator.committed());
    state.counters["over_live"] = count(allocator.committed().minus(survivor.live()));
    state.counters["least_over_live"] = count(survivor.touched().minus(survivor.live()));
    state.counters["largest_extent"] = count(allocator.backing().largest_extent());
  }
}

// The time that the backing alone needs to unmap and release so many extents of the granularity at once.
double floor_us(std::size_t extents) {
  std::vector<double> taken;
  for (int i = 0; i < 5; ++i) {
    test::FakeBacking backing({.limit = kCapacity});
    const Bytes each = backing.properties().granularity;
    const Bytes all{each.count * extents};
    auto held = must(backing.obtain({.bytes = all, .min_bytes = all, .largest = each}), "obtain");
    must(backing.map(backing.properties().base, held), "map");
    const auto start = std::chrono::steady_clock::now();
    must(backing.unmap(backing.properties().base, all), "unmap");
    backing.give_back(std::move(held));
    taken.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  return median(taken);
}

void pressure(benchmark::State& state) {
  const AllocationTrace trace = burst(1);
  for (auto _ : state) {
    Survivor survivor(trace);
    Gpumem& allocator = survivor.allocator();
    const std::size_t before = allocator.backing().extents();
    const auto start = std::chrono::steady_clock::now();
    const Bytes given = must(allocator.engine().trim(allocator::kUnknownSize), "trim");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(took.count());
    const std::size_t extents = before - allocator.backing().extents();
    state.counters["given_back"] = count(given);
    state.counters["extents"] = static_cast<double>(extents);
    state.counters["trim_us"] = 1e6 * took.count();
    state.counters["over_live"] = count(allocator.committed().minus(survivor.live()));
    if (extents != 0) state.counters["per_floor"] = 1e6 * took.count() / floor_us(extents);
  }
}

}  // namespace

void register_given_back(const SuiteOptions&) {
  const auto with = [](const char* name, auto... arguments) {
    run_once(benchmark::RegisterBenchmark(name, arguments...), benchmark::kMicrosecond);
  };
  with("given_back/burst", idle, burst);
  with("given_back/scattered_burst", idle, scattered_burst);
  with("given_back/pressure", pressure);
}

}  // namespace gpumem::bench
