#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "client/lane.h"
#include "cuda/memory.h"

namespace gpumem::client {

/// What was requested for one slice.
struct GrantTerms {
  std::uint64_t slice = 0;
  Bytes asked;
  Bytes least;  ///< at most `asked`
  Bytes granularity;
  Bytes largest{};  ///< preferred largest extent; zero: no preference
};

/// The grant to one slice: extent i, its size and the memory behind it.
struct Portion {
  struct Extent {
    std::uint64_t lease;
    Bytes size;
  };
  std::vector<Extent> extents;
  std::vector<cuda::Allocation> allocations;
};

/// Imports a grant, part by part as it comes, so that the descriptors of one part at most are open.
class Intake {
 public:
  /// `driver`, `terms`  outlive this.
  Intake(const cuda::Driver& driver, std::span<const GrantTerms> terms)
      : driver_(driver), terms_(terms), portions_(terms.size()) {}

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

  const cuda::Driver& driver_;
  const std::span<const GrantTerms> terms_;
  std::uint64_t grant_ = 0;
  std::vector<lane::GrantedLease> leases_;
  std::unordered_set<std::uint64_t> seen_;
  std::vector<Portion> portions_;
  Result<void> all_;  // the first error
};

}  // namespace gpumem::client
