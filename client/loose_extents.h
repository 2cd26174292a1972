#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "client/background_task.h"
#include "client/borrower.h"
#include "client/pressure_listener.h"
#include "cuda/memory.h"

namespace gpumem::client {

/// A slice whose extents are handed out as they are: who borrows them maps them. What is not needed any more
/// can be kept for the next request of its size. It goes back when it has been idle for a while, or when the
/// broker asks. Threads  any. No lock is held while the broker is waited for.
class LooseExtents final : public Borrower, public Trimmable {
 public:
  struct Extent {
    std::uint64_t lease = 0;
    cuda::Allocation memory;
    unsigned resumed = 0;  ///< as the lane says, when it was lent
  };
  using Extents = std::vector<Extent>;

  /// `options.room`  who borrows takes of it and gives back, but what is kept stays in it, and leaves it by
  /// itself. `idle`  how long something is kept. Errors  as Session::open_slice.
  static Result<std::unique_ptr<LooseExtents>> open(std::shared_ptr<Connection> connection,
                                                    const BorrowerOptions& options,
                                                    std::chrono::milliseconds idle);
  /// Closes the slice if everything was given back. Not run in a forked child.
  ~LooseExtents() override;

  /// Borrows `bytes`, a multiple of the granularity, as one extent. A broker that cannot make one (of a
  /// version before) lends several. Errors  as Slice::grow.   Blocks.
  Result<Extents, GrowError> borrow(Bytes bytes, std::chrono::milliseconds wait);
  /// A descriptor of the memory of the lease, from the broker: who has imported memory cannot export it.
  /// Errors  as Slice::export_handle; kResourceExhausted: there is no room for it (RLIMIT_NOFILE).   Blocks.
  Result<OwnFd> descriptor_of(std::uint64_t lease, Bytes size);
  /// Returns `extents`, which are not mapped. If the broker cannot be told now, it is told later.
  void give_back(Extents extents);

  /// Keeps `extents` of one borrow(), which are not mapped, and which nobody else has. Or returns them, if
  /// their session is lost, or another broker has taken it up: it may be unable to export them.
  void keep(Extents extents);
  /// What is kept of just this size; empty: nothing is.
  Extents take_kept(Bytes bytes);

  std::size_t device_index() const override { return device().index; }
  /// What is kept.
  Bytes surplus() const override;
  Bytes trim(Bytes wanted) override;

  /// Keeps `portion` for the calling thread's borrow() if `rest` succeeds.
  Result<void> take(Portion portion, const std::function<Result<void>()>& rest) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Kept {
    Extents extents;
    Clock::time_point since;
  };
  using BySize = std::multimap<Bytes, Kept>;

  LooseExtents(std::shared_ptr<Connection> connection, Opened opened, std::shared_ptr<Room> room,
               std::chrono::milliseconds idle);
  /// What is kept for another one to have; `which` is of kept_.
  Extents release(BySize::iterator which) GPUMEM_REQUIRES(mutex_);
  void give_back_kept(Extents extents);
  bool give_back_idle();
  void publish() GPUMEM_REQUIRES(mutex_);

  const std::shared_ptr<Room> room_;
  const std::chrono::milliseconds idle_;
  mutable Mutex mutex_;
  std::map<std::thread::id, Extents> arrived_ GPUMEM_GUARDED_BY(mutex_);
  BySize kept_ GPUMEM_GUARDED_BY(mutex_);
  Bytes kept_bytes_ GPUMEM_GUARDED_BY(mutex_);
  BackgroundTask returns_idle_;
};

}  // namespace gpumem::client
