#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <set>

namespace gpumem::sim {

/// Where pages may lie, in CUmemLocationType's numbers, which older headers know in part.
struct Whereabouts {
  enum Type : int { kNowhere = 0, kDevice = 1, kHost = 2, kHostNode = 3 };

  Type type = kNowhere;
  int id = 0;  ///< the ordinal or the node

  bool operator==(const Whereabouts&) const = default;
};

/// What a program said of pages of managed memory. It moves nothing here; it is told again.
struct Advice {
  bool is_read_mostly = false;
  Whereabouts preferred;
  Whereabouts prefetched;
  std::set<int> accessed_by;  ///< ordinals, kCpu for the host

  static constexpr int kCpu = -1;
  bool operator==(const Advice&) const = default;
};

/// The advice for every page of a process's address space. Ranges are widened to whole pages.
/// Threads: the caller holds the driver's lock.
class ManagedAdvice {
 public:
  void change(std::uint64_t start, std::uint64_t size, const std::function<void(Advice&)>& act);
  /// Calls `visit` for all advice that is given to some page of the range; at least once.
  void for_each(std::uint64_t start, std::uint64_t size,
                const std::function<void(const Advice&)>& visit) const;
  void forget(std::uint64_t start, std::uint64_t size);

 private:
  using Pieces = std::map<std::uint64_t, Advice>;
  Pieces::iterator split(std::uint64_t address);

  /// By start; each goes on to the next one's start. Before the first there is no advice.
  Pieces pieces_;
};

}  // namespace gpumem::sim
