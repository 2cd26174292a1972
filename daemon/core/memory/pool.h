#pragma once
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "daemon/core/memory/size_classes.h"
#include "gpumem/bytes.h"

namespace gpumem::core {

struct Extent {
  ExtentId id;
  Bytes size;
  bool operator==(const Extent&) const = default;
};

/// Work for the driver: it destroys all of `destroy`, then creates all of `create`.
struct Reshape {
  std::vector<ExtentId> destroy;
  std::vector<Extent> create;
};

/// The memory for a request: some extents as they are, the rest made of other extents.
struct Making {
  std::vector<Extent> taken;
  std::vector<ExtentId> destroy;
  std::vector<Extent> wanted;  ///< to be made for the request
  std::vector<Extent> rest;    ///< to be made for the pool
};

/// The warm extents of one device: created, never issued, ready to hand out. The whole pool is kept
/// physically created, its unused part in few large extents. So a process that bypasses the broker finds only
/// the memory outside the pool, and a grant usually costs no driver call.
///
/// The pool keeps a stock of each size class, and of any other size that is asked for again and again. The
/// stock follows the recent demand.
///
/// Invariant  warm() is the sum of the sizes of the extents held. An extent that was lent never comes back.
class Pool {
 public:
  static constexpr std::size_t kAnyNumber = std::numeric_limits<std::size_t>::max() / 2;

  /// `size`  of the pool when it is full; a good stock is a part of it.
  Pool(Bytes size, Bytes granularity, IdSource<ExtentId>& ids);

  const SizeClasses& classes() const { return classes_; }
  Bytes warm() const { return warm_bytes_; }
  /// The number of warm extents of `size`.
  std::size_t warm_count(Bytes size) const;

  void add(Extent extent);

  /// Whether memory that take() does not find is made as one extent, of any size, by one driver call.
  bool is_made_as_one(Bytes bytes, Bytes largest) const;

  /// Counts a served request for `bytes`, with the preference of take(), for the stock.
  void note_demand(Bytes bytes, Bytes largest);

  /// Takes extents of `bytes` in all (a multiple of the granularity): as few as add up, at most `most`. None:
  /// the warm extents do not add up.
  /// `largest`  the extents are preferably not larger than this, or than the next size that serves, as long
  /// as
  ///            half of a good stock of each size stays. Zero: no preference. kOneExtent: one extent.
  std::optional<std::vector<Extent>> take(Bytes bytes, std::size_t most, Bytes largest = {});

  /// Makes memory that take() does not find: breaks a larger extent, or merges small ones. Extents that are
  /// taken or to be destroyed leave the pool at once. None: the pool has not enough.
  /// `most`  at least the number of the largest size in `bytes`, and one of each smaller size.
  /// `room`  the number of extents that there may be more than before.
  std::optional<Making> make(Bytes bytes, std::size_t most, Bytes largest = {},
                             std::size_t room = kAnyNumber);

  /// A step towards a good stock of every size. Extents to be destroyed leave the pool at once. None: the
  /// stock is good, or as good as `room` allows: the number of extents that there may be more than before.
  std::optional<Reshape> tidy(std::size_t room = kAnyNumber);

  /// New extents, with ids, that make up `bytes`.
  std::vector<Extent> plan(Bytes bytes);
  /// The sizes for creating `count` lent extents of `size` anew. First comes what the stock lacks without
  /// demand, then as few extents as make up the rest. Each is a multiple of `size`.
  std::vector<Bytes> merged(Bytes size, std::size_t count) const;

 private:
  /// The number of extents of each size, the largest size first.
  using Counts = std::vector<std::pair<Bytes, std::size_t>>;
  struct Selection {
    Counts counts;
    Bytes rest;  ///< not covered
    std::size_t extents = 0;
  };

  /// `usable(size, there)`  the number of extents that may be selected among `there` of a size.
  template <class Usable>
  Selection select(Bytes bytes, Usable usable) const;
  Selection select_classes(Bytes bytes) const;
  Selection select_all(Bytes bytes) const;
  /// With the preferences of take().
  Selection select(Bytes bytes, std::size_t most, Bytes largest) const;
  std::vector<Extent> take(const Counts& counts);

  /// The smallest extent over `bytes` that is not selected, preferably one that the stock can spare.
  std::optional<Bytes> larger_than(Bytes bytes, const Counts& selected = {}) const;
  std::optional<Making> make_one_of(Bytes donor, Bytes bytes, std::size_t room);
  std::optional<Making> merge_into_one(Bytes bytes, std::size_t room);
  std::optional<Making> complete(Selection selection, Bytes bytes, std::size_t most, Bytes largest,
                                 std::size_t room);

  /// The size that the stock should have more of for such requests.
  Bytes stocked_for(Bytes bytes, Bytes largest) const;
  /// The number of extents of a size in a good stock.
  std::size_t goal(Bytes size) const;
  /// Below this number the stock of a size is replenished.
  std::size_t low(Bytes size) const { return (goal(size) + 1) / 2; }
  /// The number of extents of a size that the stock can spare.
  std::size_t spare(Bytes size) const;
  std::optional<Reshape> replenish(Bytes size, std::size_t room);
  std::optional<Reshape> reduce(Bytes size, std::size_t room);
  Reshape merge(std::size_t index, std::size_t groups);
  /// Divides `bytes` into sizes: first the missing stock of `size`, then as few extents as make up the rest.
  /// If these were more than `room`: as few as make up all of it.
  std::vector<Bytes> stock_up(Bytes size, Bytes bytes, std::size_t room) const;

  ExtentId pop(Bytes size);
  void pop(Bytes size, std::size_t count, std::vector<ExtentId>& into);
  std::vector<Extent> named(const std::vector<Bytes>& sizes);

  SizeClasses classes_;
  IdSource<ExtentId>& ids_;
  std::map<Bytes, std::vector<ExtentId>, std::greater<>> warm_;
  std::map<Bytes, std::size_t> least_;  ///< by class: the stock without demand
  Demand demand_;
  Bytes warm_bytes_;
};

}  // namespace gpumem::core
