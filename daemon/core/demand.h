#pragma once
#include <cstddef>
#include <map>
#include <vector>

#include "gpumem/bytes.h"

namespace gpumem::core {

/// What sizes extents were asked for lately, and how many of each. Lately is not a time but an amount: a pool
/// that idles over night is in the morning as its last users left it.
class Demand {
 public:
  /// `window`  how many bytes must be asked for until what was asked for before them begins to be forgotten.
  explicit Demand(Bytes window) : window_(window) {}

  /// `count` extents of `size` (not zero) are asked for.
  void note(Bytes size, std::size_t count);
  /// How many of `size` were asked for in this window or in the one before, whichever is more.
  std::size_t of(Bytes size) const;
  /// All sizes of which there are any.
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
