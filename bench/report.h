#pragma once
#include <benchmark/benchmark.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

#include "bench/plain_names.h"

namespace gpumem::bench {

/// Whether the words of the command line, before benchmark::Initialize takes its own, ask for a file.
template <class Words>
bool wants_file(const Words& words) {
  return std::ranges::any_of(words,
                             [](std::string_view word) { return word.starts_with("--benchmark_out="); });
}

/// The processor's name, as the system has it.
inline std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

/// Runs what is registered and the command line does not leave out: a table, and JSON if it asks for a file.
inline void run_registered(bool to_file) {
  PlainNames<benchmark::ConsoleReporter> console(benchmark::ConsoleReporter::OO_None);
  PlainNames<benchmark::JSONReporter> json;
  benchmark::RunSpecifiedBenchmarks(&console, to_file ? &json : nullptr);
  benchmark::Shutdown();
}

}  // namespace gpumem::bench
