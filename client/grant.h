#pragma once
#include <vector>

#include "client/lane.h"
#include "cuda/memory.h"
#include "gpumem/v1/broker.pb.h"

namespace gpumem::client {

struct GrantTerms {
  Bytes asked;
  Bytes granularity;
};

/// Takes the descriptors of `granted` from the lane and imports them, in the order of its leases. At most
/// one message's descriptors are open at a time.
/// Errors  kInternal: the answer or the offers are not what was asked, or contradict each other;
///         those of the lane and of the driver. Nothing is kept.
Result<std::vector<cuda::Allocation>> receive_grant(Lane& lane, const cuda::Driver& driver,
                                                    const v1::GrowResponse& granted, const GrantTerms& terms);

}  // namespace gpumem::client
