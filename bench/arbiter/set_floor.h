#pragma once
#include <set>
#include <utility>
#include <vector>

#include "bench/arbiter/shuffle.h"
#include "bench/samples.h"

namespace gpumem::bench {

/// What deciding in an order cannot be much faster than: in an ordered set of `elements` one is taken out and
/// another put in.
class SetFloor {
 public:
  explicit SetFloor(std::size_t elements) {
    for (std::size_t i = 0; i < elements; ++i) keys_.push_back(draw());
    set_.insert(keys_.begin(), keys_.end());
  }

  Samples take(std::size_t times) {
    Samples samples;
    for (std::size_t i = 0; i < times; ++i) {
      Key& old = keys_[shuffle_.below(keys_.size())];
      const Key other = draw();
      samples.add(timed([&] {
        set_.erase(old);
        set_.insert(other);
      }));
      old = other;
    }
    return samples;
  }

 private:
  using Key = std::pair<double, std::uint64_t>;

  Key draw() { return {static_cast<double>(shuffle_.below(100'000)), ++last_}; }

  Shuffle shuffle_;
  std::uint64_t last_ = 0;
  std::vector<Key> keys_;
  std::set<Key> set_;
};

}  // namespace gpumem::bench
