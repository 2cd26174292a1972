#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "client/lane.h"
#include "cuda/memory.h"
#include "gpumem/v1/broker.pb.h"

namespace gpumem::client {

/// What was requested for one slice.
struct GrantTerms {
  std::uint64_t slice = 0;
  Bytes asked;
  Bytes least;  ///< at most `asked`
  Bytes granularity;
  Bytes largest{};  ///< preferred largest extent; zero: no preference
};

/// What one slice was granted: extent i, its size and the memory behind it.
struct Portion {
  struct Extent {
    std::uint64_t lease;
    Bytes size;
  };
  std::vector<Extent> extents;
  std::vector<cuda::Allocation> allocations;
};

/// Takes the descriptors of `granted` from the lane and imports them: a portion for each of `terms`, extents
/// in the order of the answer. At most one message's descriptors are open at a time.
/// Errors  kInternal: the answer or the offers are not what was asked, or contradict each other;
///         those of the lane and of the driver. Nothing is kept.
Result<std::vector<Portion>> receive_grant(Lane& lane, const cuda::Driver& driver,
                                           const v1::GrowResponse& granted,
                                           std::span<const GrantTerms> terms);

}  // namespace gpumem::client
