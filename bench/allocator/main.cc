// gpumem_allocator_bench: what gpumem's allocator costs and keeps. Needs no broker and no GPU.
//   --small             everything once, as a test
//   --recorded FILE     replays this trace, too (trace.h has the format); may come again
// and Google Benchmark's own flags.
#include <benchmark/benchmark.h>

#include <cstring>

#include "bench/allocator/suite.h"
#include "bench/must.h"
#include "bench/report.h"

namespace gpumem::bench {
namespace {

SuiteOptions take_options(std::vector<char*>& words) {
  SuiteOptions options;
  std::vector<char*> rest{words.front()};
  for (std::size_t i = 1; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size();
    if (std::strcmp(words[i], "--small") == 0)
      options.small = true;
    else if (has_value && std::strcmp(words[i], "--recorded") == 0)
      options.recorded.emplace_back(words[++i]);
    else
      rest.push_back(words[i]);
  }
  words = std::move(rest);
  return options;
}

int run(int argc, char** argv) {
  std::vector<char*> words(argv, argv + argc);
  const SuiteOptions options = take_options(words);
  const bool to_file = wants_file(words);
  int count = static_cast<int>(words.size());
  benchmark::Initialize(&count, words.data());
  if (benchmark::ReportUnrecognizedArguments(count, words.data())) return 1;
  const std::vector<AllocationTrace> all = traces(options);
  register_alloc_free(options);
  register_batches(options);
  register_replays(all, options);
  register_given_back(options);
  run_registered(to_file);
  return 0;
}

}  // namespace
}  // namespace gpumem::bench

int main(int argc, char** argv) {
  return gpumem::bench::main_of("gpumem_allocator_bench", [&] { return gpumem::bench::run(argc, argv); });
}
