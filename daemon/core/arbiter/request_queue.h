#pragma once
#include <algorithm>
#include <array>
#include <ext/pb_ds/assoc_container.hpp>
#include <ext/pb_ds/tree_policy.hpp>
#include <functional>
#include <optional>

#include "base/check.h"
#include "base/ids.h"
#include "gpumem/bytes.h"

namespace gpumem::core {

/// Requests in the order of their ids, which is the order of arrival. Each asks for `kAmounts` amounts.
/// Adding and removing take logarithmic time. So does first_at_most() with one amount; with several it may
/// look at requests whose amounts are within `most` one by one, but not all of them together.
template <std::size_t kAmounts>
class RequestQueue {
 public:
  using Amounts = std::array<Bytes, kAmounts>;
  struct Entry {
    RequestId request;
    Amounts min_bytes;
  };

  /// `request`  was not added before.
  void add(RequestId request, const Amounts& min_bytes) {
    GPUMEM_CHECK(tree_.insert({request, min_bytes}).second, "a request comes once");
  }
  /// The request is in the queue.
  void remove(RequestId request) { GPUMEM_CHECK(tree_.erase(request), "the request is in the queue"); }

  bool empty() const { return tree_.empty(); }
  std::size_t size() const { return tree_.size(); }
  /// The first request after `after` of which each amount is at most that of `most`.
  std::optional<Entry> first_at_most(const Amounts& most, RequestId after = {}) const {
    return first_below(tree_.node_begin(), most, after);
  }

 private:
  // Keeps, for every node of the tree, the smallest of each amount among the node and all nodes below it.
  template <class ConstIterator, class Iterator, class Compare, class Allocator>
  struct Smallest {
    using metadata_type = Amounts;
    void operator()(Iterator node, ConstIterator end) const {
      Amounts smallest = (*node)->second;
      for (const Iterator& child : {node.get_l_child(), node.get_r_child()}) {
        if (child == end) continue;
        for (std::size_t i = 0; i < kAmounts; ++i)
          smallest[i] = std::min(smallest[i], child.get_metadata()[i]);
      }
      const_cast<Amounts&>(node.get_metadata()) = smallest;
    }
    virtual ~Smallest() = default;
  };
  using Tree = __gnu_pbds::tree<RequestId, Amounts, std::less<>, __gnu_pbds::rb_tree_tag, Smallest>;

  static bool within(const Amounts& amounts, const Amounts& most) {
    return std::ranges::equal(amounts, most, std::less_equal<>());
  }
  template <class Node>
  std::optional<Entry> first_below(Node node, const Amounts& most, RequestId after) const {
    if (node == tree_.node_end() || !within(node.get_metadata(), most)) return std::nullopt;
    const auto& [id, min_bytes] = **node;
    if (after < id) {
      if (const auto left = first_below(node.get_l_child(), most, after)) return left;
      if (within(min_bytes, most)) return Entry{id, min_bytes};
    }
    return first_below(node.get_r_child(), most, after);
  }

  Tree tree_;
};

}  // namespace gpumem::core
