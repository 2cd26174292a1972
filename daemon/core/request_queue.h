#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "gpumem/bytes.h"

namespace gpumem::core {

/// Requests in the order they came. Finding the first that is content with a given amount, adding and
/// removing take logarithmic time; adding one that came before others, the time of a copy of them.
class RequestQueue {
 public:
  struct Entry {
    RequestId request;
    Bytes least;
  };

  /// Everybody is content with this.
  static constexpr Bytes kMost{std::numeric_limits<std::uint64_t>::max() - 1};

  /// `request`  was not added before; `least`  below kMost.
  void add(RequestId request, Bytes least);
  /// The request is in the queue.
  void remove(RequestId request);

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  std::optional<Entry> first() const { return first_at_most(kMost); }
  /// The first whose least is at most `bytes`.
  std::optional<Entry> first_at_most(Bytes bytes) const;

 private:
  static constexpr Bytes kGone{std::numeric_limits<std::uint64_t>::max()};
  static constexpr std::size_t kBlock = 16;

  std::optional<Entry> first_at_most(Bytes bytes, std::size_t from) const;
  void insert(RequestId request, Bytes least);
  void make_room();
  void build_tree();
  void update(std::size_t block);
  Bytes smallest_of(std::size_t block) const;

  std::vector<Entry> entries_;  ///< by request; those that left stay for a while, with kGone as their least
  // The smallest least of each block of entries, as a complete binary tree: node i has the children 2i and
  // 2i+1, and the blocks are its leaves. None, as long as there is one block.
  std::vector<Bytes> smallest_;
  std::uint32_t capacity_ = 0;  ///< of entries_, before gaps are closed: a power of two
  std::uint32_t first_ = 0;     ///< the place of the first that has not left
  Entry front_;                 ///< that one
  std::uint32_t size_ = 0;
};

}  // namespace gpumem::core
