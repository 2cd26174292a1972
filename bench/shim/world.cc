#include "bench/shim/world.h"

#include <cuda.h>

#include <cstdio>
#include <cstdlib>

#include "bench/beside.h"
#include "bench/broker/process.h"
#include "sim/control/costs.h"
#include "sim/machine/machine.h"

namespace gpumem::bench {
namespace {

/// The driver of `broker`: a simulated one unless $GPUMEM_DRIVER_DIR names another, empty the system's. It
/// is said to the shim, and to every program that is started.
std::string driver_of(const Broker& broker, const std::string& shim_folder) {
  const char* const named = std::getenv("GPUMEM_DRIVER_DIR");
  const std::string folder = named != nullptr ? named : broker.folder() + "/driver";
  if (!folder.empty()) ::setenv("GPUMEM_REAL_LIBCUDA", folder.c_str(), 1);
  ::setenv("GPUMEM_SHIM_FOLDER", shim_folder.c_str(), 1);
  ::setenv("GPUMEM_RUNTIME_DIR", broker.folder().c_str(), 1);
  return folder.empty() ? "libcuda.so.1" : folder + "/libcuda.so.1";
}

/// $GPUMEM_OTHER_HOOK, started, whatever its cuInit answers: its other calls may need what that loads. A
/// process of its own tries it first, since a hook may end the process that it is loaded into.
std::optional<Library> other_hook(const std::string& driver) {
  const char* const named = std::getenv("GPUMEM_OTHER_HOOK");
  if (named == nullptr || *named == '\0') return std::nullopt;
  try {
    Process::start({find_beside({"gpumem_shim_started"}), "--hook", driver, named}).await_ready();
  } catch (const std::exception&) {
    std::fprintf(stderr,
                 "gpumem_shim_bench: %s is left out: a process that loads it and calls its cuInit and its "
                 "cuDriverGetVersion ends. Check that the file is there and loads beside %s\n",
                 named, driver.c_str());
    return std::nullopt;
  }
  Library hook{std::string(named)};
  if (auto* const init = hook.find_if_there<decltype(::cuInit)>("cuInit"); init != nullptr) (void)init(0);
  return hook;
}

}  // namespace

ShimWorld::ShimWorld()
    : shim_folder(find_beside({"../lib/gpumem/shim", "../../client/shim/lib"})),
      driver_file(driver_of(broker, shim_folder)),
      shim_file(shim_folder + "/libcuda.so.1"),
      driver(driver_file),
      shim(shim_file),
      hook(other_hook(driver_file)) {
  require(shim.find<decltype(::cuInit)>("cuInit")(0) == CUDA_SUCCESS, "cuInit");
}

bool ShimWorld::is_simulated() const { return std::getenv("GPUMEM_DRIVER_DIR") == nullptr; }

void ShimWorld::set_costs(const std::string& profile) const {
  const auto machine = must(sim::load_machine(broker.folder() + "/driver"), "simulated machine");
  if (profile == "none") return must(sim::clear_costs(machine), "costs");
  const std::string file =
      find_beside({"../lib/gpumem/sim/costs", "../../sim/costs"}) + "/" + profile + ".costs";
  must(sim::set_costs(machine, must(sim::load_costs(file), "cost profile")), "costs");
}

void ShimWorld::use_device() {
  if (has_context) return;
  CUcontext context = nullptr;
  require(shim.find<decltype(::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, 0) ==
              CUDA_SUCCESS,
          "cuDevicePrimaryCtxRetain");
  require(shim.find<decltype(::cuCtxSetCurrent)>("cuCtxSetCurrent")(context) == CUDA_SUCCESS,
          "cuCtxSetCurrent");
  has_context = true;
}

void report(benchmark::State& state, const Pair& pair, const std::string& unit, double per_unit) {
  const double direct = pair.direct.median_us(), through = pair.through.median_us();
  state.counters["direct_" + unit] = direct / per_unit;
  state.counters["through_" + unit] = through / per_unit;
  state.counters["added_" + unit] = (through - direct) / per_unit;
  state.counters["ratio"] = through / direct;
  if (pair.hook.count() == 0) return;
  state.counters["hook_" + unit] = pair.hook.median_us() / per_unit;
  state.counters["hook_ratio"] = pair.hook.median_us() / direct;
}

}  // namespace gpumem::bench
