#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "daemon/core/types.h"
#include "daemon/host/descriptor_budget.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// The peer of each connection of gRPC, by the number of gRPC's descriptor. Limits the connections in all and
/// of each user; those of administrators do not count.
/// Threads  any.
class ApiConnections {
 public:
  struct Limits {
    std::size_t in_all;
    std::size_t of_a_user;
  };
  struct Caller {
    core::Peer peer;
    bool admin = false;
    std::shared_ptr<const UniqueFd> pidfd{};  ///< the process; none: the kernel has no handle for it
  };

  explicit ApiConnections(Limits limits) : limits_(limits) {}
  explicit ApiConnections(const DescriptorBudget& budget) : limits_({budget.api(), budget.api_of_a_user()}) {}

  /// Errors  kResourceExhausted: the limit, in words.
  Result<void> check_room(const Caller& caller) const;
  void add(int number, Caller caller);
  void remove(int number);
  /// Nothing: there is no such connection.
  std::optional<Caller> find(int number) const;
  std::size_t size() const;

 private:
  const Limits limits_;
  mutable Mutex mutex_;
  std::unordered_map<int, Caller> by_number_ GPUMEM_GUARDED_BY(mutex_);
  std::size_t counted_ GPUMEM_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::size_t> by_user_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::host
