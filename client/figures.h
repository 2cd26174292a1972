#pragma once
#include <array>
#include <atomic>
#include <cstdint>

#include "shm/pages.h"

namespace gpumem::client {

/// A session's own figures, summed over its slices, and their copy in the page that the broker reads.
/// Invariant  when no update is in progress, the page shows the sums, with in_use <= peak.
/// Threads    any; no locks.
class Figures {
 public:
  /// `page`  outlives this.
  explicit Figures(ClientPage& page) : page_(page) {}

  /// What one slice adds to the sums of its device. Negative changes are two's complement.
  struct Change {
    std::uint64_t reserved = 0;
    std::uint64_t committed = 0;
    std::uint64_t in_use = 0;
  };
  void apply(std::size_t device, const Change& change);
  /// The page is new: it shows the sums from now on.
  void publish_all();

 private:
  struct Sums {
    std::atomic<std::uint64_t> reserved{0};
    std::atomic<std::uint64_t> committed{0};
    std::atomic<std::uint64_t> in_use{0};
    std::atomic<std::uint64_t> peak{0};
  };
  static ClientFigures snapshot(const Sums& sums);

  ClientPage& page_;
  std::array<Sums, kMaxDevices> sums_;
};

/// The figures of one slice: keeps in_use <= committed whatever the caller says.
/// Threads  any; no locks. Its destruction removes the slice's part from the sums.
class SliceFigures {
 public:
  SliceFigures(Figures& figures, std::size_t device, std::uint64_t reserved);
  ~SliceFigures();
  SliceFigures(const SliceFigures&) = delete;
  SliceFigures& operator=(const SliceFigures&) = delete;

  std::uint64_t committed() const { return committed_.load(std::memory_order_acquire); }
  std::uint64_t wanted() const { return wanted_.load(); }  ///< in use as the caller says
  void set_committed(std::uint64_t bytes);
  void set_in_use(std::uint64_t bytes);

 private:
  void publish_in_use();

  Figures& figures_;
  const std::size_t device_;
  const std::uint64_t reserved_;
  std::atomic<std::uint64_t> committed_{0};
  std::atomic<std::uint64_t> wanted_{0};  ///< in use as the caller says
  std::atomic<std::uint64_t> in_use_{0};  ///< in use as published
  std::atomic<bool> publishing_{false};
};

}  // namespace gpumem::client
