#pragma once
#include <limits>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "gpumem/bytes.h"

namespace gpumem::core {

/// Requests in the order they came. Finding the first that is content with a given amount, adding and
/// removing take logarithmic time.
class Line {
 public:
  struct Entry {
    RequestId request;
    Bytes least;
  };

  /// `request`  larger than all that were added before.
  void add(RequestId request, Bytes least);
  /// The request is in the line.
  void remove(RequestId request);

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  std::optional<Entry> first() const { return first_at_most({kGone - 1}); }
  /// The first, of those after `after`, whose least is at most `bytes`.
  std::optional<Entry> first_at_most(Bytes bytes, RequestId after = {}) const;

 private:
  static constexpr std::uint64_t kGone = std::numeric_limits<std::uint64_t>::max();

  void set(std::size_t place, std::uint64_t least);
  void make_room();

  // A complete binary tree: node i has the children 2i and 2i+1 and the smaller of their values; the places
  // are its leaves, from capacity() on.
  std::size_t capacity() const { return smallest_.size() / 2; }
  std::vector<std::uint64_t> smallest_;
  std::vector<RequestId> requests_;  ///< by place, ascending; those that left keep theirs for a while
  std::size_t size_ = 0;
};

}  // namespace gpumem::core
