#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "client/lane/lane.h"
#include "client/process/messages.h"
#include "cuda/memory.h"
#include "gpumem/denial.h"
#include "gpumem/options.h"

namespace gpumem::client {

/// What was requested for one slice.
struct GrantTerms {
  std::uint64_t slice = 0;
  Bytes bytes;
  Bytes min_bytes;  ///< at most `bytes`
  Bytes granularity;
  Bytes largest{};                       ///< preferred largest extent; zero: no preference
  const cuda::Driver* driver = nullptr;  ///< of the slice's device; null: it is of the host store
};

/// The grant to one slice: extent i, its size, and the memory or, in the host store, the file behind it.
struct Portion {
  struct Extent {
    std::uint64_t lease;
    Bytes size;
  };
  std::vector<Extent> extents;
  std::vector<cuda::Allocation> allocations;
  std::vector<OwnFd> files;
};

/// Imports a grant, part by part as it comes, so that the descriptors of one part at most are open.
class Intake {
 public:
  /// `terms`  outlive this.
  explicit Intake(std::span<const GrantTerms> terms) : terms_(terms), portions_(terms.size()) {}

  /// Imports `part`, unless something was wrong before.
  void add(GrantPart part);
  /// The number of the grant, once a part has come.
  std::uint64_t grant() const { return grant_; }
  /// Every lease that has come, whatever was wrong.
  const std::vector<lane::GrantedLease>& leases() const { return leases_; }
  /// A portion for each of the terms, extents in the order of the grant; when all parts have come.
  /// Errors  kInternal: it is not what was asked; kResourceExhausted: no room for descriptors; the driver's.
  Result<std::vector<Portion>> take();

 private:
  Result<void> import(GrantPart& part);
  Result<void> import(const lane::GrantedLease& lease, OwnFd descriptor);
  Result<void> check_sizes() const;

  const std::span<const GrantTerms> terms_;
  std::uint64_t grant_ = 0;
  std::vector<lane::GrantedLease> leases_;
  std::unordered_set<std::uint64_t> seen_;
  std::vector<Portion> portions_;
  Result<void> all_;  // the first error
};

class Borrower;

/// The request of a growth for one slice, as Slice::grow's `target` and GrowOptions::least.
struct GrowthPart {
  Borrower* slice = nullptr;
  Bytes bytes;
  Bytes min_bytes;
};

/// Grows the slices of `parts` as Session::grow_all does. Slice::grow is the case of one part. Returns the
/// committed sizes, part by part. `parts`    not empty; slices of one session on different devices. `options`
/// its `least` is ignored; each part has its own.
Result<std::vector<Bytes>, GrowError> grow_slices(std::span<const GrowthPart> parts,
                                                  const GrowOptions& options);

/// Tells of a growth that may wait so long for memory, as GPUMEM_WAIT asks for. A program that asks for a
/// wait itself tells its user what it wants. Null: it is too short to be told of.
std::unique_ptr<WaitNotice> notice_of_wait(const Borrower& slice, Bytes bytes,
                                           std::chrono::milliseconds wait);

/// Between `min_bytes` and `bytes`, multiples of the granularity.
struct MoreMemory {
  Bytes bytes;
  Bytes min_bytes;  ///< not zero, at most `bytes`
  Bytes largest;    ///< preferred largest extent, as far as that costs nothing; zero: no preference
  std::chrono::nanoseconds taken{};  ///< of the timeout, by earlier requests of the same call
  bool is_probe = false;             ///< a refusal is no denial: the caller asks again
};

/// Grows `slice` by `more`, whatever is committed, in one request.
/// Errors  as Slice::grow.
Result<void, GrowError> grow_by(Borrower& slice, const MoreMemory& more, const GrowOptions& options);

}  // namespace gpumem::client
