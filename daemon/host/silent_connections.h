#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>

namespace gpumem::host {

/// The connections whose client has not said anything yet: so many in all, and so many of each user. One too
/// many costs a silent one its place, not the newcomer: the oldest of that user, or of the user who has most.
/// Threads  one.
class SilentConnections {
 public:
  struct Limits {
    std::size_t in_all;
    std::size_t of_a_user;
  };
  /// Cuts a connection off; may call remove().
  using Cut = std::function<void(const std::string& why)>;

  explicit SilentConnections(Limits limits) : limits_(limits) {}

  /// `key`  names the connection: its address.
  void add(const void* key, std::uint64_t account, Cut cut);
  /// Its client has spoken, or it is gone. Does nothing for one that is not there.
  void remove(const void* key);
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t account;
    std::uint64_t number;
    Cut cut;
  };
  using Queue = std::map<std::uint64_t, const void*>;  // the oldest first
  void cut_oldest(std::uint64_t account, const std::string& why);

  const Limits limits_;
  std::uint64_t next_ = 0;
  std::unordered_map<const void*, Entry> entries_;
  std::map<std::uint64_t, Queue> by_user_;
};

}  // namespace gpumem::host
