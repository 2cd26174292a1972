#pragma once
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/ids.h"

namespace gpumem::host {

/// The owners of the places of a store, which keeps so many extents for the next broker. Kept regions go
/// first, because a restart ends them if nobody else has their memory. Among these, and among all others,
/// tenants share: one that has more loses a place to one that has less. Threads  one at a time.
class StorePlaces {
 public:
  /// What an extent is to its tenant.
  struct Standing {
    std::string tenant;
    bool is_kept = false;  ///< a kept region lies in it
  };
  struct Outcome {
    bool has_place = false;
    std::optional<ExtentId> loser{};  ///< has lost its place for it
  };

  explicit StorePlaces(std::size_t most) : most_(most) {}

  /// Gives `extent` a place, if it is due one; one that has a place keeps it, with this standing.
  Outcome take(ExtentId extent, const Standing& standing);
  /// No effect if it has none.
  void free(ExtentId extent);

 private:
  using Share = std::deque<ExtentId>;           // oldest first
  using Shares = std::map<std::string, Share>;  // by tenant; none is empty
  Shares& shares(bool is_kept) { return is_kept ? kept_ : others_; }
  std::optional<ExtentId> find_loser(const Standing& for_whom);

  const std::size_t most_;
  std::unordered_map<ExtentId, Standing> placed_;
  Shares kept_;
  Shares others_;
};

}  // namespace gpumem::host
