// gpumem_arbiter_sim: one day of many sessions under four ways to share devices. README.md tells what is
// simulated; the exit status is 1 if a promise was broken. One JSON object: options, trace, floor,
// strategies[].
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/arbiter/day.h"
#include "bench/arbiter/set_floor.h"
#include "bench/must.h"
#include "daemon/core/policy.h"

namespace gpumem::bench {
namespace {

using nlohmann::json;

struct Options {
  TraceOptions trace;
  std::string file;
  std::string only;
};

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Simulates a day of sessions that share devices, under gpumem's arbiter and three simpler ways."};
  bool small = false;
  std::string pool;
  double hours = 24;
  app.add_flag("--small", small, "200 tenants, 2,000 sessions, 2 devices of 8 GiB, 2 hours for a day");
  app.add_option("--tenants", options.trace.tenants, "Tenants (default 10000)");
  app.add_option("--sessions", options.trace.sessions, "Sessions of the day (default 100000)");
  app.add_option("--devices", options.trace.devices, "Devices (default 8, at most 32)");
  app.add_option("--pool", pool, "Pool of each device (default 80GiB)");
  app.add_option("--hours", hours, "Length of the day (default 24)");
  app.add_option("--load", options.trace.load, "Demand over the day, as a part of the pools (default 0.85)");
  app.add_option("--seed", options.trace.seed, "Of the trace (default 1)");
  app.add_option("--only", options.only, "Only strategies whose name begins so");
  app.add_option("--json", options.file, "Write the results there too");
  try {
    app.parse(argc, argv);
    if (small) {
      options.trace = {200, 2000, 2, gibibytes(8), {}, options.trace.load, options.trace.seed};
      hours = 2;
    }
    options.trace.day = std::chrono::seconds(static_cast<std::int64_t>(hours * 3600));
    if (!pool.empty()) {
      const auto bytes = parse_bytes(pool);
      if (!bytes) throw CLI::ValidationError("--pool", bytes.error().message);
      options.trace.pool = bytes->rounded_down(kGranularity);
    }
    const TraceOptions& trace = options.trace;
    if (trace.tenants == 0 || trace.sessions == 0 || trace.devices == 0 || trace.devices > 32)
      throw CLI::ValidationError("sizes", "at least one tenant, session and device, at most 32 devices");
    if (trace.pool < gibibytes(1) || hours < 0.1 || trace.load <= 0)
      throw CLI::ValidationError("sizes", "a pool of at least 1GiB, a day of 0.1 hours, a load above 0");
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  return options;
}

double at(const std::vector<double>& ascending, double part) {
  if (ascending.empty()) return 0;
  return ascending[static_cast<std::size_t>(part * static_cast<double>(ascending.size() - 1))];
}

json describe(const std::vector<double>& waits, std::size_t gave_up) {
  json curve = json::array();
  for (int i = 0; i <= 100; ++i) curve.push_back(at(waits, i / 100.0));
  return {{"requests", waits.size()},
          {"p50_s", at(waits, 0.5)},
          {"p90_s", at(waits, 0.9)},
          {"p99_s", at(waits, 0.99)},
          {"max_s", at(waits, 1)},
          {"gave_up", gave_up},
          {"curve_s", curve},
          {"gave_up_part",
           waits.empty() ? 0.0 : static_cast<double>(gave_up) / static_cast<double>(waits.size())}};
}

json describe(const DayResult& day) {
  json parts = json::array();
  for (const DayResult::Part& part : day.parts)
    parts.push_back({{"demand", part.demand}, {"held", part.held}, {"waiting", part.waiting}});
  return {{"all", describe(day.waits, day.gave_up)},
          {"large", describe(day.large_waits, day.large_gave_up)},
          {"within_guarantee", describe(day.guaranteed_waits, day.guaranteed_gave_up)},
          {"use", day.use},
          {"contended_part_of_day", day.contended},
          {"contended_use", day.contended_use},
          {"jain", day.fairness.jain},
          {"jain_capped", day.fairness.jain_capped},
          {"service_p10", day.fairness.lowest_tenth},
          {"service_p50", day.fairness.median},
          {"tenants_compared", day.fairness.tenants},
          {"yields", day.yields},
          {"yielded_bytes", day.yielded},
          {"parts", parts},
          {"broken", day.broken}};
}

json describe_decisions(const Samples& decisions, const DayResult& day) {
  double most = 1;
  for (const DayResult::Part& part : day.parts) most = std::max(most, part.waiting);
  const double floor = SetFloor(static_cast<std::size_t>(most)).take(20'000).median_us();
  return {{"count", decisions.count()},
          {"median_us", decisions.median_us()},
          {"p99_us", decisions.quantile_us(0.99)},
          {"per_second", 1e6 / decisions.mean_us()},
          {"floor_elements", static_cast<std::size_t>(most)},
          {"floor_us", floor},
          {"median_per_floor", decisions.median_us() / floor}};
}

struct Candidate {
  const char* name;
  std::unique_ptr<Strategy> (*make)(const Trace& trace);
  bool keeps_guarantees;
};
constexpr Duration kPatient = std::chrono::hours(1);
constexpr Candidate kCandidates[] = {
    {"gpumem", [](const Trace& trace) { return broker_strategy(trace, false, core::Policy{}.aging); }, true},
    {"gpumem, aging 1 h", [](const Trace& trace) { return broker_strategy(trace, false, kPatient); }, true},
    {"gpumem, and lending", [](const Trace& trace) { return broker_strategy(trace, true, kPatient); }, false},
    {"static split", static_split, false},
    {"first come", first_come, false},
    {"retry every 0.5 s", retrying, false},
};

void print(const std::string& name, const json& one) {
  std::printf("%-20s jain %.3f (capped %.3f)  wait p50 %.1f p90 %.1f p99 %.0f s  gave up %.2f%%  use %.1f%%",
              name.c_str(), one["jain"].get<double>(), one["jain_capped"].get<double>(),
              one["all"]["p50_s"].get<double>(), one["all"]["p90_s"].get<double>(),
              one["all"]["p99_s"].get<double>(), 100 * one["all"]["gave_up_part"].get<double>(),
              100 * one["use"].get<double>());
  std::printf("  large gave up %.0f%%  guaranteed: p99 %.2f s  (%.1f s)\n",
              100 * one["large"]["gave_up_part"].get<double>(),
              one["within_guarantee"]["p99_s"].get<double>(), one["seconds"].get<double>());
  for (const json& broken : one["broken"]) std::printf("  BROKEN  %s\n", broken.get<std::string>().c_str());
}

json describe(const Trace& trace) {
  const TraceOptions& options = trace.options;
  return {{"tenants", options.tenants},
          {"sessions", options.sessions},
          {"devices", options.devices},
          {"pool", options.pool.count},
          {"day_s", std::chrono::duration<double>(options.day).count()},
          {"load", options.load},
          {"seed", options.seed}};
}

int run(const Options& options) {
  const Trace trace = make_trace(options.trace);
  json out{{"options", describe(trace)},
           {"cores", std::thread::hardware_concurrency()},
           {"strategies", json::array()}};
  bool kept = true;
  for (const Candidate& candidate : kCandidates) {
    if (!std::string_view(candidate.name).starts_with(options.only)) continue;
    const auto strategy = candidate.make(trace);
    DayResult day;
    const auto took = timed([&] { day = play(trace, *strategy, candidate.keeps_guarantees); });
    json one = describe(day);
    one["name"] = candidate.name;
    one["seconds"] = seconds(took);
    if (strategy->decisions().count() != 0) one["decisions"] = describe_decisions(strategy->decisions(), day);
    print(candidate.name, one);
    std::fflush(stdout);
    kept = kept && day.broken.empty();
    out["strategies"].push_back(std::move(one));
  }
  require(!out["strategies"].empty(), "no strategy's name begins so", options.only);
  if (!options.file.empty()) {
    std::ofstream file(options.file);
    file << out.dump(1) << "\n";
    require(static_cast<bool>(file.flush()), "cannot write", options.file);
  }
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace gpumem::bench

int main(int argc, char** argv) {
  return gpumem::bench::main_of("gpumem_arbiter_sim",
                                [&] { return gpumem::bench::run(gpumem::bench::parse(argc, argv)); });
}
