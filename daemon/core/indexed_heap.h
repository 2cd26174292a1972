#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace gpumem::core {

/// Where items stand in their heaps; several heaps may share one, as long as no item is in two of them.
class HeapPositions {
 public:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  std::uint32_t operator[](std::uint32_t item) const { return item < at_.size() ? at_[item] : kNone; }
  void set(std::uint32_t item, std::size_t position) {
    if (item >= at_.size()) at_.resize(item + std::size_t{1}, kNone);
    at_[item] = static_cast<std::uint32_t>(position);
  }
  void clear(std::uint32_t item) { at_[item] = kNone; }

 private:
  std::vector<std::uint32_t> at_;
};

/// Entries by their order, the smallest first, of small numbers (`Entry::item`). Putting in, changing and
/// taking out take logarithmic time. With four children to a node it is as flat as two cache lines allow.
template <class Entry>
class IndexedHeap {
 public:
  bool empty() const { return entries_.empty(); }
  const Entry& top() const { return entries_.front(); }
  const Entry& at(std::uint32_t position) const { return entries_[position]; }

  void add(const Entry& entry, HeapPositions& positions) {
    entries_.push_back(entry);
    rise(entries_.size() - 1, entry, positions);
  }
  /// In place of what stands there.
  void change(std::uint32_t position, const Entry& entry, HeapPositions& positions) {
    if (entry < entries_[position])
      rise(position, entry, positions);
    else
      sink(position, entry, positions);
  }
  void remove(std::uint32_t position, HeapPositions& positions) {
    positions.clear(entries_[position].item);
    const Entry last = entries_.back();
    entries_.pop_back();
    if (position < entries_.size()) change(position, last, positions);
  }

 private:
  static constexpr std::size_t kChildren = 4;

  void rise(std::size_t position, const Entry& entry, HeapPositions& positions) {
    for (std::size_t parent = 0; position > 0; position = parent) {
      parent = (position - 1) / kChildren;
      if (!(entry < entries_[parent])) break;
      place(position, entries_[parent], positions);
    }
    place(position, entry, positions);
  }
  void sink(std::size_t position, const Entry& entry, HeapPositions& positions) {
    for (std::size_t child = 0;; position = child) {
      const std::size_t first = kChildren * position + 1;
      if (first >= entries_.size()) break;
      child = first;
      const std::size_t end = first + kChildren < entries_.size() ? first + kChildren : entries_.size();
      for (std::size_t other = first + 1; other < end; ++other) {
        if (entries_[other] < entries_[child]) child = other;
      }
      if (!(entries_[child] < entry)) break;
      place(position, entries_[child], positions);
    }
    place(position, entry, positions);
  }
  void place(std::size_t position, const Entry& entry, HeapPositions& positions) {
    entries_[position] = entry;
    positions.set(entry.item, position);
  }

  std::vector<Entry> entries_;
};

}  // namespace gpumem::core
