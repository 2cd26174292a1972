#pragma once
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "bench/arbiter/touch_floor.h"
#include "bench/samples.h"

namespace gpumem::bench {

/// How a decision grows from a small state to a large one. Both are measured in turns, so that other work on
/// the machine slows both alike.
///
/// `Full`  has bytes(), the memory of its records, and decide(), which makes one decision and tells its time.
template <class Full>
class Growth {
 public:
  /// `records`  that one decision is about. Both states outlive this.
  Growth(Full& few, Full& many, std::size_t records)
      : few_(few), many_(many), few_floor_(few.bytes(), records), many_floor_(many.bytes(), records) {}

  void take_turns() {
    const double few = median_of(few_);
    const double many = median_of(many_);
    const double few_floor = few_floor_.take(kTurn).median_us();
    const double many_floor = many_floor_.take(kTurn).median_us();
    floors_.push_back(many_floor);
    ratios_.push_back(many / few);
    growths_.push_back(many - few);
    if (few > few_floor) beyond_.push_back((many - many_floor) / (few - few_floor));
  }
  void report(benchmark::State& state) {
    state.counters["ratio"] = median(ratios_);
    state.counters["growth_us"] = median(growths_);
    state.counters["touch_floor_us"] = median(floors_);
    // A decision that reads ahead may take less than reads one after the other: then there is nothing beyond
    // them.
    if (beyond_.size() == ratios_.size()) state.counters["ratio_beyond_floor"] = median(beyond_);
  }

 private:
  static constexpr std::size_t kTurn = 400;
  static constexpr std::size_t kSettle = 100;  // what the others had in the caches is gone then

  static double median_of(Full& full) {
    for (std::size_t i = 0; i < kSettle; ++i) full.decide();
    Samples samples;
    for (std::size_t i = 0; i < kTurn; ++i) samples.add(full.decide());
    return samples.median_us();
  }
  static double median(std::vector<double>& values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  }

  Full& few_;
  Full& many_;
  TouchFloor few_floor_;
  TouchFloor many_floor_;
  std::vector<double> floors_, ratios_, growths_, beyond_;
};

}  // namespace gpumem::bench
