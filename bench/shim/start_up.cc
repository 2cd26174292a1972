// Programs from their start until they have what they ask for, or have ended, each a fresh process.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/system/unique_fd.h"
#include "bench/beside.h"
#include "bench/must.h"
#include "bench/shim/world.h"

namespace gpumem::bench {
namespace {

/// A real driver takes its time to start.
constexpr int kPrograms = 50, kProgramsOnARealDriver = 7;
constexpr double kMillisecond = 1000;

using Command = std::vector<std::string>;

/// Runs `command`, by path, without a word of it on standard error. Returns the time from its start until it
/// has written a byte, or has ended.
Clock::duration time_of(const Command& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  int ends[2] = {-1, -1};
  require(::pipe2(ends, O_CLOEXEC) == 0, "pipe2", "has failed");
  const UniqueFd output(ends[0]);
  UniqueFd theirs(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
  pid_t pid = 0;
  int started = -1;
  const Clock::duration time = timed([&] {
    started = ::posix_spawn(&pid, words[0], &actions, nullptr, words.data(), environ);
    theirs.reset();
    char byte = 0;
    (void)!::read(output.get(), &byte, 1);
  });
  ::posix_spawn_file_actions_destroy(&actions);
  int status = -1;
  require(started == 0 && ::waitpid(pid, &status, 0) == pid && status == 0, words[0], "has failed");
  return time;
}

void compare_programs(benchmark::State& state, const ShimWorld& world, const Command& direct,
                      const Command& through) {
  if (world.is_simulated()) world.set_costs("none");
  Pair pair;
  for (auto _ : state) {
    pair.direct.add(time_of(direct));
    pair.through.add(time_of(through));
  }
  report(state, pair, "ms", kMillisecond);
}

void add(const ShimWorld& world, const char* name, const Command& direct, const Command& through) {
  benchmark::RegisterBenchmark(name, compare_programs, std::cref(world), direct, through)
      ->Iterations(world.is_simulated() ? kPrograms : kProgramsOnARealDriver)
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

void register_start_up(ShimWorld& world) {
  const std::string two_mebibytes = std::to_string(2 << 20), started = find_beside({"gpumem_shim_started"});
  add(world, "start_up/cuInit", {started, world.driver_file}, {started, world.shim_file});
  add(world, "start_up/first_memory", {started, world.driver_file, two_mebibytes},
      {started, world.shim_file, two_mebibytes});
  add(world, "start_up/first_memory_threaded", {started, world.driver_file, two_mebibytes, "threaded"},
      {started, world.shim_file, two_mebibytes, "threaded"});
  add(world, "start_up/gpumem_run", {"/bin/true"},
      {find_beside({"gpumem", "../../client/cli/gpumem"}), "run", "--", "/bin/true"});
}

}  // namespace gpumem::bench
