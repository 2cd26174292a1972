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
    std::size_t size;
    Item item;
  };
  /// In the order in which they came.
  using Entries = std::map<std::uint64_t, Entry>;

  explicit FairBuffer(std::size_t most) : most_(most) {}
  FairBuffer(FairBuffer&&) noexcept = default;
  FairBuffer& operator=(FairBuffer&&) noexcept = default;

  void push(const std::string& owner, std::size_t size, Item item) {
    auto& [name, own] = *owners_.try_emplace(owner).first;
    resize(name, own, own.size + size);
    own.numbers.push_back(next_);
    entries_.emplace_hint(entries_.end(), next_++, Entry{size, std::move(item)});
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
  using Ranked = std::pair<std::size_t, const std::string*>;  ///< the name is the key in owners_

  void resize(const std::string& name, Owner& owner, std::size_t size) {
    auto ranked = by_size_.extract(Ranked{owner.size, &name});
    owner.size = size;
    if (ranked.empty()) {
      by_size_.emplace(size, &name);
      return;
    }
    ranked.value().first = size;
    by_size_.insert(std::move(ranked));
  }

  void drop_oldest_of_largest() {
    const std::string& name = *by_size_.rbegin()->second;
    Owner& owner = owners_.at(name);
    const auto oldest = entries_.find(owner.numbers.front());
    owner.numbers.pop_front();
    total_ -= oldest->second.size;
    resize(name, owner, owner.size - oldest->second.size);
    entries_.erase(oldest);
    if (!owner.numbers.empty()) return;
    by_size_.erase(Ranked{owner.size, &name});
    owners_.erase(owners_.find(name));
  }

  std::size_t most_;
  std::size_t total_ = 0;
  std::uint64_t next_ = 0;
  Entries entries_;
  std::unordered_map<std::string, Owner> owners_;
  std::set<Ranked> by_size_;
};

}  // namespace gpumem::host
