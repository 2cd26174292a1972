#pragma once
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "daemon/core/demand.h"
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

/// How the memory for a request comes about: some of it as it is, the rest made of other extents.
struct Making {
  std::vector<Extent> taken;
  std::vector<ExtentId> destroy;
  std::vector<Extent> wanted;  ///< to be made for the request
  std::vector<Extent> rest;    ///< to be made for the pool
};

/// The warm extents of one device: created, never issued, ready to hand out. All of a pool is kept
/// physically created, the part that no request has needed yet in few large extents: so a process past
/// the broker finds only what is left, and a grant usually costs no driver call.
///
/// There is a stock of each class of sizes, and of any other size that is asked for again and again; of each
/// as many as were asked for lately.
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
  /// How many of `size` are here.
  std::size_t warm_count(Bytes size) const;

  void add(Extent extent);

  /// Whether what take() does not find is made as one extent, of any size: with one call of the driver.
  bool is_made_as_one(Bytes bytes, Bytes largest) const;

  /// A request for `bytes` was served, with the preference of take(): the stock is to follow.
  void note_demand(Bytes bytes, Bytes largest);

  /// Takes extents of `bytes` in all (a multiple of the granularity), at most `most` of them: as few as add
  /// up; or nothing, if the extents at hand do not.
  /// `largest`  they are preferably not larger than this, or than the next size that serves, as far as half
  ///            of a good stock of each size stays for others. Zero: no preference. kOneExtent: one extent.
  std::optional<std::vector<Extent>> take(Bytes bytes, std::size_t most, Bytes largest = {});

  /// How what take() does not find is made: a larger extent broken, or small ones merged. What is taken and
  /// what is to be destroyed leaves the pool at once. Nothing, if what is here is not enough.
  /// `most`  at least what the largest size takes for `bytes`, and one of each smaller size.
  std::optional<Making> make(Bytes bytes, std::size_t most, Bytes largest = {});

  /// A step towards a good stock of every size, or nothing if the stock is good. What is to be destroyed
  /// leaves the pool at once.
  std::optional<Reshape> tidy();

  /// New extents, with ids, that make up `bytes`.
  std::vector<Extent> plan(Bytes bytes);

 private:
  /// How many of each size, largest first.
  using Counts = std::vector<std::pair<Bytes, std::size_t>>;
  struct Selection {
    Counts counts;
    Bytes rest;  ///< not covered
    std::size_t extents = 0;
  };

  /// `usable(size, there)`  how many of `there` of a size may be selected.
  template <class Usable>
  Selection select(Bytes bytes, Usable usable) const;
  Selection select_classes(Bytes bytes) const;
  Selection select_all(Bytes bytes) const;
  /// With the preferences of take().
  Selection select(Bytes bytes, std::size_t most, Bytes largest) const;
  std::vector<Extent> take(const Counts& counts);

  /// The smallest extent over `bytes` that is not selected; one that the stock can spare, if there is one.
  std::optional<Bytes> larger_than(Bytes bytes, const Counts& selected = {}) const;
  Making make_one_of(Bytes donor, Bytes bytes);
  std::optional<Making> merge_into_one(Bytes bytes);
  std::optional<Making> complete(Selection selection, Bytes bytes, std::size_t most, Bytes largest);

  /// The size of which the stock is to have more for such requests.
  Bytes stocked_for(Bytes bytes, Bytes largest) const;
  /// How many of a size make a good stock.
  std::size_t goal(Bytes size) const;
  /// So few of a size are no good stock any more.
  std::size_t low(Bytes size) const { return (goal(size) + 1) / 2; }
  /// How many of a size others can have.
  std::size_t spare(Bytes size) const;
  std::optional<Reshape> replenish(Bytes size);
  std::optional<Reshape> reduce(Bytes size);
  Reshape merge(std::size_t index, std::size_t groups);
  /// The sizes of what `bytes` are made into: of `size` what its stock lacks, and as few as make up the rest.
  std::vector<Bytes> stock_up(Bytes size, Bytes bytes) const;

  ExtentId pop(Bytes size);
  void pop(Bytes size, std::size_t count, std::vector<ExtentId>& into);
  std::vector<Extent> named(const std::vector<Bytes>& sizes);

  SizeClasses classes_;
  IdSource<ExtentId>& ids_;
  std::map<Bytes, std::vector<ExtentId>, std::greater<>> warm_;
  std::map<Bytes, std::size_t> least_;  ///< of each class, a good stock whatever the demand
  Demand demand_;
  Bytes warm_bytes_;
};

}  // namespace gpumem::core
