#pragma once
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "daemon/core/size_classes.h"
#include "gpumem/bytes.h"

namespace gpumem::core {

struct Extent {
  ExtentId id;
  Bytes size;
  bool operator==(const Extent&) const = default;
};

/// Work for the driver: first everything in `destroy` goes, then everything in `create` is made.
struct Reshape {
  std::vector<ExtentId> destroy;
  std::vector<Extent> create;
};

/// The warm extents of one device: created, never issued, ready to hand out. All of a pool is kept
/// physically created, the part that no request has needed yet in few large extents: so a process past
/// the broker finds only what is left, and a grant usually costs no driver call.
///
/// Invariant  warm() is the sum of the sizes of the extents held; an extent that was lent never comes back
/// here.
class Pool {
 public:
  /// `size`  of the pool when it is full; a good stock is a part of it.
  Pool(Bytes size, Bytes granularity, IdSource<ExtentId>& ids);

  const SizeClasses& classes() const { return classes_; }
  Bytes warm() const { return warm_bytes_; }
  std::size_t warm_count() const;

  void add(Extent extent);

  /// Takes extents of `bytes` in all (a multiple of the granularity), largest first, at most `most` of
  /// them; or nothing, if the extents at hand do not add up to it.
  /// `largest`  they are preferably not larger than this, or than the next size that serves, as far as half
  ///            of a good stock of each size stays for others. Zero: as few as possible.
  std::optional<std::vector<Extent>> take(Bytes bytes, std::size_t most, Bytes largest = {});

  /// What makes take(bytes, most) possible: a larger extent broken, or small ones merged. The extents to
  /// destroy leave the pool at once. Nothing, if what is here is not enough.
  std::optional<Reshape> reshape_for(Bytes bytes, std::size_t most);

  /// A step towards a stock of every size, or nothing if the stock is good. As reshape_for.
  std::optional<Reshape> tidy();

  /// New extents, with ids, that make up `bytes`.
  std::vector<Extent> plan(Bytes bytes);

 private:
  struct Selection {
    std::array<std::size_t, SizeClasses::kCount> counts{};
    Bytes rest;  ///< not covered
    std::size_t extents = 0;
  };
  /// How many of each size there are to select from.
  using Stock = std::array<std::size_t, SizeClasses::kCount>;
  Stock all() const;
  /// Of the sizes up to `index`, what may be taken by preference.
  Stock spare_up_to(std::size_t index) const;
  Selection select(Bytes bytes, const Stock& stock) const;
  Selection select(Bytes bytes, std::size_t most, Bytes largest) const;
  /// So few of a size are no good stock any more.
  std::size_t low(std::size_t index) const { return (aims_[index] + 1) / 2; }
  ExtentId pop(std::size_t index);
  Reshape break_one(std::size_t index, std::vector<Bytes> into);
  Reshape merge(std::size_t index, std::size_t groups);
  std::optional<Reshape> replenish(std::size_t index);
  std::vector<Extent> named(const std::vector<Bytes>& sizes);

  SizeClasses classes_;
  IdSource<ExtentId>& ids_;
  std::array<std::vector<ExtentId>, SizeClasses::kCount> warm_;
  std::array<std::size_t, SizeClasses::kCount> aims_{};  ///< how many of each size make a good stock
  Bytes warm_bytes_;
};

}  // namespace gpumem::core
