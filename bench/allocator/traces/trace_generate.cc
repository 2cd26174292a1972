// gpumem_trace_generate: writes the traces that the benchmarks replay, or one of them, as files.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "bench/allocator/traces/workloads.h"
#include "bench/must.h"

namespace gpumem::bench {
namespace {

int run(int argc, char** argv) {
  CLI::App app{"Writes traces of allocations that are shaped by published workloads."};
  std::string folder = ".", only;
  std::uint64_t seed = 1;
  app.add_option("folder", folder, "Where NAME.trace is written (default: here)");
  app.add_option("--only", only, "Only this trace");
  app.add_option("--seed", seed, "Of the draws (default 1)");
  CLI11_PARSE(app, argc, argv);
  std::filesystem::create_directories(folder);
  bool found = false;
  for (const Workload& workload : workloads()) {
    if (!only.empty() && only != workload.name) continue;
    found = true;
    const AllocationTrace trace = workload.make(seed);
    const TraceFigures figures = figures_of(trace);
    must(write_trace(trace, std::filesystem::path(folder) / (trace.name + ".trace")), "write");
    std::printf("%-14s %8zu calls  peak %-10s largest %-10s streams %u  left %-10s %s\n", workload.name,
                trace.calls.size(), to_string(figures.peak).c_str(), to_string(figures.largest).c_str(),
                figures.streams, to_string(figures.left).c_str(), workload.words);
  }
  require(found, "there is no trace", only);
  return 0;
}

}  // namespace
}  // namespace gpumem::bench

int main(int argc, char** argv) {
  return gpumem::bench::main_of("gpumem_trace_generate", [&] { return gpumem::bench::run(argc, argv); });
}
