#pragma once
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

namespace gpumem::bench {

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// The times of two ways to do one thing, measured in turns, so that a busy machine slows down both.
struct Compared {
  double ns = 0;        ///< median
  double floor_ns = 0;  ///< median, of the other
  double ratio = 0;     ///< median of the turns' ratios
};

/// `one` and `floor` answer nanoseconds for each operation.
template <class One, class Floor>
Compared compare(std::size_t turns, One&& one, Floor&& floor) {
  std::vector<double> ones, floors, ratios;
  for (std::size_t i = 0; i < turns; ++i) {
    floors.push_back(floor());
    ones.push_back(one());
    ratios.push_back(ones.back() / floors.back());
  }
  return {median(ones), median(floors), median(ratios)};
}

/// Runs `work(thread)` on so many threads at once. Answers the time from the first's start to the last's end.
template <class Work>
std::chrono::nanoseconds at_once(std::size_t threads, Work&& work) {
  using Clock = std::chrono::steady_clock;
  if (threads == 1) {
    const auto start = Clock::now();
    work(std::size_t{0});
    return Clock::now() - start;
  }
  std::barrier gate(static_cast<std::ptrdiff_t>(threads));
  std::vector<std::pair<Clock::time_point, Clock::time_point>> times(threads);
  std::vector<std::jthread> running;
  for (std::size_t i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      work(i);  // caches fill; not timed
      gate.arrive_and_wait();
      times[i].first = Clock::now();
      work(i);
      times[i].second = Clock::now();
    });
  }
  running.clear();
  auto [start, end] = times.front();
  for (const auto& [from, to] : times) {
    start = std::min(start, from);
    end = std::max(end, to);
  }
  return end - start;
}

}  // namespace gpumem::bench
