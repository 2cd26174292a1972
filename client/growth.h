#pragma once
#include <span>
#include <vector>

#include "gpumem/denial.h"
#include "gpumem/slice.h"

namespace gpumem::client {

class Borrower;

/// What a growth asks of one slice: as Slice::grow's `target` and GrowOptions::least.
struct GrowthPart {
  Borrower* slice = nullptr;
  Bytes target;
  Bytes least;
};

/// Grows the slices of `parts` as Session::grow_all does, Slice::grow being the case of one. Answers the
/// committed sizes, part by part. `parts` is not empty; its slices are of one session and of different
/// devices; the part says what is enough, not `options`.
Result<std::vector<Bytes>, GrowError> grow_slices(std::span<const GrowthPart> parts,
                                                  const GrowOptions& options);

/// Between `least` and `most` bytes, multiples of the granularity.
struct MoreMemory {
  Bytes most;
  Bytes least;    ///< not zero, at most `most`
  Bytes largest;  ///< extents should not be larger than this, where that costs nothing; zero: no wish
};

/// Grows `slice` by as much as `more` says, whatever is committed: in one request.
/// Errors  as Slice::grow.
Result<void, GrowError> grow_by(Borrower& slice, const MoreMemory& more, const GrowOptions& options);

}  // namespace gpumem::client
