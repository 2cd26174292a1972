#include <benchmark/benchmark.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "bench/arbiter/decide.h"
#include "bench/must.h"
#include "bench/report.h"
#include "bench/roles.h"
#include "bench/world.h"

namespace gpumem::bench {
namespace {

struct Role {
  const char* name;
  void (*play)(const RoleArguments& arguments);
};
constexpr Role kRoles[] = {{"echo_packets", echo_packets},
                           {"serve_empty_calls", serve_empty_calls},
                           {"hold_sessions", hold_sessions},
                           {"hold_leases", hold_leases},
                           {"fill_and_free", fill_and_free},
                           {"storm", storm},
                           {"hold_slices", hold_slices},
                           {"list_sessions", list_sessions},
                           {"greet", greet}};

int play_role(const std::string& name, const RoleArguments& arguments) {
  for (const Role& role : kRoles) {
    if (name != role.name) continue;
    role.play(arguments);
    return 0;
  }
  give_up("no such role", name);
}

int run(int argc, char** argv) {
  const auto to_file = initialize({argv, argv + argc});
  if (!to_file) return 1;
  benchmark::AddCustomContext("cpu_model", processor());
  const char* costs = std::getenv("GPUMEM_BENCH_COSTS");
  benchmark::AddCustomContext("costs_of_simulated_calls",
                              costs == nullptr || *costs == '\0' ? "none" : costs);
  World world;
  register_floors(world);
  register_grow_shrink(world);
  register_stream_growth(world);
  register_session_open(world);
  register_session_idle(world);
  register_kill_reclaim(world);
  register_neighbour(world);
  register_listing(world);
  register_simulated_extent(world);
  register_region_unmap(world);
  register_allocator_growth(world);
  register_pressed_allocator(world);
  register_after_burst(world);
  register_through_c(world);
  register_decide();
  register_decide_broker();
  run_registered(*to_file);
  return 0;
}

}  // namespace
}  // namespace gpumem::bench

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  const bool plays_role = argc >= 3 && std::strcmp(argv[1], "--role") == 0;
  return gpumem::bench::main_of("gpumem_bench", [&] {
    return plays_role ? gpumem::bench::play_role(argv[2], {argv + 3, argv + argc})
                      : gpumem::bench::run(argc, argv);
  });
}
