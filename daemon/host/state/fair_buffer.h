#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

namespace gpumem::host {

/// Items in the order in which they came, each of an owner and of a size; bounded in sum. If they become too
/// much, the owner who has most loses the oldest item (longest-queue drop): so no owner's items push out
/// those of an owner who has less. Threads  one at a time.
template <class Item>
class FairBuffer {
 public:
  struct Entry {
    std::string owner;
    std::size_t size;
    Item item;
  };
  /// In the order in which they came.
  using Entries = std::map<std::uint64_t, Entry>;

  explicit FairBuffer(std::size_t most) : most_(most) {}

  void push(std::string owner, std::size_t size, Item item) {
    Owner& own = owners_[owner];
    resize(owner, own, own.size + size);
    own.numbers.push_back(next_);
    entries_.emplace(next_++, Entry{std::move(owner), size, std::move(item)});
    total_ += size;
    while (total_ > most_) drop_oldest_of_largest();
  }

  bool empty() const { return entries_.empty(); }
  const Entries& entries() const { return entries_; }

 private:
  struct Owner {
    std::size_t size = 0;
    std::deque<std::uint64_t> numbers{};
  };

  void resize(const std::string& name, Owner& owner, std::size_t size) {
    by_size_.erase({owner.size, name});
    owner.size = size;
    by_size_.insert({owner.size, name});
  }

  void drop_oldest_of_largest() {
    const std::string name = by_size_.rbegin()->second;
    Owner& owner = owners_.at(name);
    const auto oldest = entries_.find(owner.numbers.front());
    owner.numbers.pop_front();
    total_ -= oldest->second.size;
    resize(name, owner, owner.size - oldest->second.size);
    entries_.erase(oldest);
    if (!owner.numbers.empty()) return;
    by_size_.erase({owner.size, name});
    owners_.erase(name);
  }

  std::size_t most_;
  std::size_t total_ = 0;
  std::uint64_t next_ = 0;
  Entries entries_;
  std::unordered_map<std::string, Owner> owners_;
  std::set<std::pair<std::size_t, std::string>> by_size_;
};

}  // namespace gpumem::host
