// gpumem_shim_bench: what the shim costs. Each thing is done through it and by the driver itself, in turns,
// so that both meet the same machine. Google Benchmark's flags.
#include <benchmark/benchmark.h>

#include <csignal>

#include "bench/must.h"
#include "bench/report.h"
#include "bench/shim/world.h"

namespace gpumem::bench {
namespace {

int run(int argc, char** argv) {
  const auto to_file = initialize({argv, argv + argc});
  if (!to_file) return 1;
  benchmark::AddCustomContext("cpu_model", processor());
  ShimWorld world;
  register_forwarding(world);
  register_memory(world);
  register_start_up(world);
  run_registered(*to_file);
  return 0;
}

}  // namespace
}  // namespace gpumem::bench

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  return gpumem::bench::main_of("gpumem_shim_bench", [&] { return gpumem::bench::run(argc, argv); });
}
