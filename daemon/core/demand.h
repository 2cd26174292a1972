#pragma once
#include <cstddef>
#include <map>
#include <vector>

#include "gpumem/bytes.h"

namespace gpumem::core {

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
