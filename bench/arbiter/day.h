#pragma once
#include <array>
#include <string>
#include <vector>

#include "bench/arbiter/fairness.h"
#include "bench/arbiter/strategy.h"

namespace gpumem::bench {

/// What came of a trace under one strategy. Waits in seconds; who gave up counts with its patience.
struct DayResult {
  std::vector<double> waits;             ///< for a session's first memory, ascending
  std::vector<double> large_waits;       ///< of sessions of a tenth of the pool and more, ascending
  std::vector<double> guaranteed_waits;  ///< of requests within a guarantee when they came, ascending
  std::size_t gave_up = 0;
  std::size_t large_gave_up = 0;
  std::size_t guaranteed_gave_up = 0;
  double use = 0;            ///< held part of the pools, over the day
  double contended_use = 0;  ///< the same, where and while more was asked for than there is
  double contended = 0;      ///< how much of the day that was, on average over the devices
  std::size_t yields = 0;    ///< times that a session gave memory back because it was asked
  double yielded = 0;        ///< bytes
  Fairness::Result fairness;

  /// One part of the day; parts of the pools, averages.
  struct Part {
    double demand = 0;
    double held = 0;
    double waiting = 0;  ///< sessions that have nothing yet
  };
  std::vector<Part> parts;
  std::vector<std::string> broken;  ///< promises that were not kept; empty: none
};

/// Plays `trace` to its end. A session asks for all of its size, waits as long as it has patience, holds its
/// memory for its duration and ends. An elastic one is content with its least, goes on asking for the rest,
/// at least as much as its least at a time, and gives back what it is asked for as far as it has more than
/// its least, 200 ms after it is asked. `keeps_guarantees`  no request within a guarantee may wait.
DayResult play(const Trace& trace, Strategy& strategy, bool keeps_guarantees);

}  // namespace gpumem::bench
