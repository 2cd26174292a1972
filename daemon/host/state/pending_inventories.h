#pragma once
#include <cstddef>
#include <optional>
#include <unordered_map>

#include "daemon/core/words/checkpoint.h"
#include "proto/lane/frames.h"

namespace gpumem::host {

/// The inventories of clients that come back, as long as frames of them are missing.
/// Threads  the loop's.
class PendingInventories {
 public:
  /// Adds `part` to the inventory that comes on `lane`. Returns the inventory once it is whole.
  /// `most`  things that the session had. Errors  kInvalidArgument: it does not follow on the part before,
  ///         has more than `most`, or is not in order. The inventory is dropped.
  Result<std::optional<core::Inventory>> add(const void* lane, const lane::Resume& part, std::size_t most);
  void drop(const void* lane) { pending_.erase(lane); }

 private:
  struct Pending {
    std::uint64_t session = 0;
    std::uint64_t missing = 0;  ///< as the latest part said
    core::Inventory inventory;
  };
  static Result<void> add(core::Inventory& inventory, const lane::Resume& part);

  std::unordered_map<const void*, Pending> pending_;
};

}  // namespace gpumem::host
