#pragma once
#include <benchmark/benchmark.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/plain_names.h"

namespace gpumem::bench {

/// Flags of a program's own, beside Google Benchmark's.
struct OwnFlags {
  bool small = false;                 ///< --small
  std::vector<std::string> values{};  ///< of the flag with a value, which may come again
};

/// Takes --small and each `flag VALUE` out of the command line.
inline OwnFlags take_own(std::vector<char*>& words, std::string_view flag) {
  OwnFlags own;
  std::vector<char*> rest{words.front()};
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--small")
      own.small = true;
    else if (word == flag && i + 1 < words.size())
      own.values.emplace_back(words[++i]);
    else
      rest.push_back(words[i]);
  }
  words = std::move(rest);
  return own;
}

/// Gives the words of the command line to Google Benchmark. Answers whether they ask for a file. Nothing: one
/// of them is unknown, and that was said.
inline std::optional<bool> initialize(std::vector<char*> words) {
  const bool to_file =
      std::ranges::any_of(words, [](std::string_view word) { return word.starts_with("--benchmark_out="); });
  int count = static_cast<int>(words.size());
  benchmark::Initialize(&count, words.data());
  if (benchmark::ReportUnrecognizedArguments(count, words.data())) return std::nullopt;
  return to_file;
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
