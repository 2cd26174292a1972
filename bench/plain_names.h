#pragma once
#include <benchmark/benchmark.h>

#include <vector>

namespace gpumem::bench {

/// A reporter that names benchmarks as they are registered, without the library's notes on how it times them.
template <class Reporter>
class PlainNames final : public Reporter {
 public:
  using Reporter::Reporter;

  void ReportRuns(const std::vector<typename Reporter::Run>& runs) override {
    auto plain = runs;
    for (auto& run : plain) {
      run.run_name.time_type.clear();
      run.run_name.iterations.clear();
    }
    Reporter::ReportRuns(plain);
  }
};

}  // namespace gpumem::bench
