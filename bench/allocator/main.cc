// gpumem_allocator_bench: what gpumem's allocator costs and keeps. Needs no broker and no GPU.
//   --small             everything once, as a test
//   --recorded FILE     replays this trace, too (trace.h has the format); may come again
// and Google Benchmark's own flags.
#include <benchmark/benchmark.h>

#include <vector>

#include "bench/allocator/suite.h"
#include "bench/must.h"
#include "bench/report.h"

namespace gpumem::bench {
namespace {

int run(int argc, char** argv) {
  std::vector<char*> words(argv, argv + argc);
  const OwnFlags own = take_own(words, "--recorded");
  const SuiteOptions options{.small = own.small, .recorded = {own.values.begin(), own.values.end()}};
  const auto to_file = initialize(words);
  if (!to_file) return 1;
  const std::vector<AllocationTrace> all = traces(options);
  register_alloc_free(options);
  register_batches(options);
  register_replays(all, options);
  register_given_back(options);
  run_registered(*to_file);
  return 0;
}

}  // namespace
}  // namespace gpumem::bench

int main(int argc, char** argv) {
  return gpumem::bench::main_of("gpumem_allocator_bench", [&] { return gpumem::bench::run(argc, argv); });
}
