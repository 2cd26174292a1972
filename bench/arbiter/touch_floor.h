#pragma once
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "bench/arbiter/shuffle.h"
#include "bench/must.h"
#include "bench/samples.h"

namespace gpumem::bench {

/// What a decision among many takes, whatever it computes, unless it reads ahead: the records that it is
/// about are read, one after the other, from as much memory as the records of all take. Each is a cache line
/// at a random place, known only once the one before has been read, as a session's tenant is.
class TouchFloor {
 public:
  /// `bytes`    of all records; `records`  that a decision is about.
  TouchFloor(std::size_t bytes, std::size_t records) : records_(records), lines_(bytes / sizeof(Line) + 1) {
    std::vector<std::uint32_t> order(lines_.size());
    std::iota(order.begin(), order.end(), 0U);
    for (std::size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[shuffle_.below(i + 1)]);
    for (std::size_t i = 0; i < order.size(); ++i) lines_[order[i]].next = order[(i + 1) % order.size()];
  }

  Samples take(std::size_t times) {
    Samples samples;
    for (std::size_t i = 0; i < times; ++i) {
      samples.add(timed([&] {
        for (std::size_t record = 0; record < records_; ++record) at_ = lines_[at_].next;
      }));
    }
    require(at_ < lines_.size(), "all reads are within the state");
    return samples;
  }

 private:
  struct alignas(64) Line {
    std::uint32_t next = 0;
  };

  std::size_t records_;
  Shuffle shuffle_;
  std::vector<Line> lines_;
  std::uint32_t at_ = 0;
};

}  // namespace gpumem::bench
