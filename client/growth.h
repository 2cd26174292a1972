#pragma once
#include <span>
#include <vector>

#include "gpumem/denial.h"
#include "gpumem/options.h"

namespace gpumem::client {

class Borrower;

/// The request of a growth for one slice, as Slice::grow's `target` and GrowOptions::least.
struct GrowthPart {
  Borrower* slice = nullptr;
  Bytes target;
  Bytes least;
};

/// Grows the slices of `parts` as Session::grow_all does. Slice::grow is the case of one part. Returns the
/// committed sizes, part by part. `parts`    not empty; slices of one session on different devices. `options`
/// its `least` is ignored; each part has its own.
Result<std::vector<Bytes>, GrowError> grow_slices(std::span<const GrowthPart> parts,
                                                  const GrowOptions& options);

/// Between `least` and `most` bytes, multiples of the granularity.
struct MoreMemory {
  Bytes most;
  Bytes least;    ///< not zero, at most `most`
  Bytes largest;  ///< preferred largest extent, as far as that costs nothing; zero: no preference
  std::chrono::nanoseconds taken{};  ///< of the timeout, by earlier requests of the same call
};

/// Grows `slice` by `more`, whatever is committed, in one request.
/// Errors  as Slice::grow.
Result<void, GrowError> grow_by(Borrower& slice, const MoreMemory& more, const GrowOptions& options);

}  // namespace gpumem::client
