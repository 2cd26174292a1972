#pragma once
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

namespace gpumem::core {

/// A sorted set in blocks of neighbours: what a search touches lies together, unlike the nodes of std::set.
/// A change moves a block of at most kBlock values, and seldom the list of the blocks.
template <class T>
class BlockSet {
 public:
  static constexpr std::size_t kBlock = 32;

  class const_iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = const T&;

    const T& operator*() const { return set_->blocks_[block_][place_]; }
    const T* operator->() const { return &**this; }
    const_iterator& operator++() {
      ++place_;
      settle();
      return *this;
    }
    const_iterator operator++(int) {
      const_iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const const_iterator&) const = default;

   private:
    friend class BlockSet;
    const_iterator(const BlockSet* set, std::size_t block, std::size_t place)
        : set_(set), block_(block), place_(place) {
      settle();
    }
    // Past the end of a block is the start of the next; no block is empty.
    void settle() {
      if (block_ == set_->blocks_.size() || place_ < set_->blocks_[block_].size()) return;
      ++block_;
      place_ = 0;
    }

    const BlockSet* set_;
    std::size_t block_;
    std::size_t place_;
  };

  bool empty() const { return blocks_.empty(); }
  const_iterator begin() const { return {this, 0, 0}; }
  const_iterator end() const { return {this, blocks_.size(), 0}; }
  const_iterator lower_bound(const T& value) const {
    if (blocks_.empty()) return end();
    const std::size_t block = block_of(value);
    return {this, block, place_of(value, block)};
  }

  /// False: it is there already.
  bool insert(const T& value) {
    if (blocks_.empty()) return add_block(0, {value}, value);
    std::size_t block = block_of(value);
    if (blocks_[block].size() == kBlock && split(block) && !(value < lowest_[block + 1])) ++block;
    const std::size_t place = place_of(value, block);
    Block& values = blocks_[block];
    if (place < values.size() && !(value < values[place])) return false;
    values.insert(values.begin() + static_cast<std::ptrdiff_t>(place), value);
    if (value < lowest_[block]) lowest_[block] = value;
    return true;
  }
  /// False: it is not there.
  bool erase(const T& value) {
    if (blocks_.empty()) return false;
    const std::size_t block = block_of(value);
    const std::size_t place = place_of(value, block);
    Block& values = blocks_[block];
    if (place == values.size() || value < values[place]) return false;
    values.erase(values.begin() + static_cast<std::ptrdiff_t>(place));
    if (values.empty())
      drop_block(block);
    else if (block > 0)
      merge(block - 1);
    return true;
  }

 private:
  using Block = std::vector<T>;

  static auto at(auto& list, std::size_t place) { return list.begin() + static_cast<std::ptrdiff_t>(place); }

  // The last whose lowest is not above the value; else the first.
  std::size_t block_of(const T& value) const {
    const auto after = std::upper_bound(lowest_.begin(), lowest_.end(), value);
    return after == lowest_.begin() ? 0 : static_cast<std::size_t>(after - lowest_.begin()) - 1;
  }
  std::size_t place_of(const T& value, std::size_t block) const {
    const Block& values = blocks_[block];
    return static_cast<std::size_t>(std::lower_bound(values.begin(), values.end(), value) - values.begin());
  }
  bool add_block(std::size_t block, Block values, const T& lowest) {
    blocks_.insert(at(blocks_, block), std::move(values));
    lowest_.insert(at(lowest_, block), lowest);
    return true;
  }
  void drop_block(std::size_t block) {
    blocks_.erase(at(blocks_, block));
    lowest_.erase(at(lowest_, block));
  }
  bool split(std::size_t block) {
    Block& values = blocks_[block];
    Block upper(at(values, kBlock / 2), values.end());
    upper.reserve(kBlock);
    values.resize(kBlock / 2);
    const T lowest = upper.front();
    return add_block(block + 1, std::move(upper), lowest);
  }
  // With the next, if both are small.
  void merge(std::size_t block) {
    if (blocks_[block].size() + blocks_[block + 1].size() > kBlock / 2) return;
    blocks_[block].insert(blocks_[block].end(), blocks_[block + 1].begin(), blocks_[block + 1].end());
    drop_block(block + 1);
  }

  std::vector<Block> blocks_;
  std::vector<T> lowest_;  ///< by block: nothing in it is below this, and nothing before it is not
};

}  // namespace gpumem::core
