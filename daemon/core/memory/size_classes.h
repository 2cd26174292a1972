#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <vector>

#include "gpumem/bytes.h"

namespace gpumem::core {

/// The sizes that extents come in: the granularity times 1, 4, 16, ... 1024 (2 MiB to 2 GiB). Physical
/// memory cannot be split or joined. With few sizes, memory that one client returned can serve the next. Only
/// an extent that is asked for as one has another size.
class SizeClasses {
 public:
  static constexpr std::size_t kCount = 6;
  static constexpr std::uint64_t kStep = 4;

  explicit SizeClasses(Bytes granularity);

  Bytes granularity() const { return sizes_.front(); }
  Bytes largest() const { return sizes_.back(); }
  Bytes size(std::size_t index) const { return sizes_[index]; }
  /// Whether there is a class of exactly `size`.
  bool has(Bytes size) const { return std::ranges::find(sizes_, size) != sizes_.end(); }
  /// The largest class that is not over `bytes`, or else the granularity.
  Bytes largest_within(Bytes bytes) const;
  /// The fewest sizes that make up `bytes` (a multiple of the granularity), largest first.
  std::vector<Bytes> split(Bytes bytes) const;

 private:
  std::array<Bytes, kCount> sizes_{};
};

/// The recent demand for extents, by size. The window is an amount, not a time: after an idle night the
/// demand is still that of the last users.
class Demand {
 public:
  /// `window`  the bytes after which older demand begins to be forgotten.
  explicit Demand(Bytes window) : window_(window) {}

  /// Counts a demand for `count` extents of `size` (not zero).
  void note(Bytes size, std::size_t count);
  /// The demand for `size` in this window or in the one before, whichever is more.
  std::size_t of(Bytes size) const;
  /// All sizes with demand.
  std::vector<Bytes> sizes() const;
  Bytes window() const { return window_; }

 private:
  using Counts = std::map<Bytes, std::size_t>;

  Bytes window_;
  Bytes sum_;  ///< of `now_`
  Counts now_;
  Counts before_;
};

}  // namespace gpumem::core
