#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "client/slice/borrower.h"
#include "cuda/memory.h"

namespace gpumem::client {

/// A slice whose extents are handed out as they are: who borrows them maps them.
/// Threads  any. No lock is held while the broker is waited for.
class LooseExtents final : public Borrower {
 public:
  struct Extent {
    std::uint64_t lease = 0;
    cuda::Allocation memory;
  };

  /// Errors  as Session::open_slice.
  static Result<std::unique_ptr<LooseExtents>> open(std::shared_ptr<Connection> connection,
                                                    const BorrowerOptions& options);
  /// Closes the slice if everything was given back. Not run in a forked child.
  ~LooseExtents() override;

  /// Borrows `bytes`, a multiple of the granularity, as one extent. A broker that cannot make one
  /// lends several. Errors  as Slice::grow.   Blocks.
  Result<std::vector<Extent>, GrowError> borrow(Bytes bytes, std::chrono::milliseconds wait, bool is_probe);
  /// A descriptor of the memory of the lease, from the broker: who has imported memory cannot export it.
  /// Errors  as Slice::export_handle; kResourceExhausted: there is no room for it (RLIMIT_NOFILE).   Blocks.
  Result<OwnFd> descriptor_of(std::uint64_t lease, Bytes size);
  /// Returns `extents`, which are not mapped. If the broker cannot be told now, it is told later.
  void give_back(std::vector<Extent> extents);

  /// Keeps `portion` for the calling thread's borrow() if `rest` succeeds.
  Result<void> take(Portion portion, const std::function<Result<void>()>& rest) override;

 private:
  LooseExtents(std::shared_ptr<Connection> connection, Opened opened)
      : Borrower(std::move(connection), std::move(opened), Bytes{}) {}

  Mutex mutex_;
  std::map<std::thread::id, std::vector<Extent>> arrived_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::client
