#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "gpumem/bytes.h"
#include "gpumem/denial.h"
#include "gpumem/options.h"
#include "gpumem/result.h"

namespace gpumem::allocator {

/// An address of device memory.
using Address = std::uint64_t;

/// One physical allocation, lent by the broker. It cannot be split and is mapped as a whole.
struct Extent {
  std::uint64_t id = 0;  ///< the backing's own, unique while the extent is held
  Bytes size;
};

/// Where an allocator's memory and addresses come from: the broker and the driver, or a test.
/// Invariant  [base, base + addresses) is reserved for as long as this lives.
/// Threads    obtain: any, one call at a time. give_back, export_range, publish: any. The rest: under the
/// allocator's lock.
class Backing {
 public:
  virtual ~Backing() = default;

  /// What never changes.
  struct Properties {
    Address base = 0;
    Bytes addresses;
    Bytes granularity;   ///< sizes of extents are multiples of it
    Bytes limit;         ///< most bytes obtained at one time
    std::string device;  ///< its UUID
    int ordinal = 0;     ///< of the device, in this process
  };
  virtual const Properties& properties() const = 0;

  struct Request {
    Bytes most;     ///< a multiple of the granularity
    Bytes least;    ///< the least that is enough; at most `most`
    Bytes largest;  ///< preferred largest extent, as far as that costs nothing
    std::chrono::milliseconds wait{0};
    std::stop_token stop{};            ///< calls it off
    std::chrono::nanoseconds taken{};  ///< of the broker's timeout, by earlier requests of the same call
  };
  /// Obtains extents, not mapped yet, of `least` to `most` bytes in total.
  /// Errors  as Slice::grow; kCancelled.   Blocks.
  virtual Result<std::vector<Extent>, GrowError> obtain(const Request& request) = 0;

  /// Maps `extents` one after the other from `at` on, readable and writable. All or nothing. An extent may be
  /// mapped elsewhere, too.
  virtual Result<void> map(Address at, std::span<const Extent> extents) = 0;
  /// Unmaps [at, at + bytes), which begins and ends with extents and has no holes. All or nothing.
  virtual Result<void> unmap(Address at, Bytes bytes) = 0;
  /// Returns `extents`, which are not mapped anywhere. If the broker cannot be told now, it is told later.
  virtual void give_back(std::vector<Extent> extents) = 0;

  /// Names [at, at + bytes), which is mapped, for other processes.   Errors  as Allocator::export_handle.
  using HandleBytes = std::array<char, 64>;
  virtual Result<HandleBytes> export_range(Address at, Bytes bytes, const ExportOptions& options) = 0;

  /// From now on the device with `ordinal` in this process may use what is mapped, too.
  /// Errors  the driver's: they are no peers.   Threads  under the allocator's lock.
  virtual Result<void> allow(int ordinal) = 0;

  /// Shows people how much is in use.
  virtual void publish(Bytes in_use) = 0;
};

}  // namespace gpumem::allocator
