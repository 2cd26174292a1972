#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/connection.h"
#include "client/grant.h"
#include "client/turn.h"

namespace gpumem::client {

/// What of a new slice is asked for, as in SliceOptions.
struct BorrowerOptions {
  std::string device{};
  Bytes limit{};
  std::string label{};
};

/// A slice as the broker knows it: what may be asked for it, and what it has to be told. What is done with
/// the memory is the derived class's.
/// Threads  any. turn() is the growths' and may be held for as long as one waits. `returning_` is held,
///          shared, from the moment memory is let go of until the broker has been told.
///          Order: turn(), `returning_`, the derived class's; of several slices, the lower id first.
class Borrower {
 public:
  using Leases = std::vector<std::uint64_t>;

  /// Does not end the slice: what it holds is the derived class's to give back, see close().
  virtual ~Borrower() = default;
  Borrower(const Borrower&) = delete;
  Borrower& operator=(const Borrower&) = delete;

  Result<void> usable() const { return connection_->usable(); }

  // For growths (growth.h).
  Turn& turn() { return growing_; }
  /// What is committed once the broker knows of all that was let go of.
  Bytes committed_and_told();
  /// Makes `portion` the slice's, if `rest` succeeds then. Nothing is kept otherwise.
  virtual Result<void> take(Portion portion, const std::function<Result<void>()>& rest) = 0;
  /// Tells the broker that `leases` are let go of, and what it could not be told before.
  Result<void> return_leases(Leases leases);

  Connection& connection() { return *connection_; }
  std::uint64_t id() const { return opened_.id; }
  Bytes committed() const { return {figures_.committed()}; }
  Bytes limit() const { return opened_.limit; }
  Bytes granularity() const { return opened_.granularity; }
  const SharedDevice& device() const { return opened_.device; }

 protected:
  /// A slice that the broker has just opened.
  struct Opened {
    SharedDevice device;
    std::uint64_t id = 0;
    Bytes limit;
    Bytes granularity;
    /// What addresses of it are aligned to: a multiple of both sides' granularity.
    Bytes alignment() const { return std::max(granularity, device.device->granularity); }
  };
  /// Errors  as Session::open_slice.
  static Result<Opened> open(Connection& connection, const BorrowerOptions& options);
  /// Ends a slice that holds nothing; the session's end does so as well.
  static void close(Connection& connection, std::uint64_t id);

  /// `addresses`  that are reserved for it: for its figures.
  Borrower(std::shared_ptr<Connection> connection, Opened opened, Bytes addresses);

  SliceFigures& figures() { return figures_; }
  const SliceFigures& figures() const { return figures_; }
  std::shared_mutex& returning() { return returning_; }
  /// Something was let go of that the broker does not know of.
  bool owes();

 private:
  Result<void> return_batch(const Leases& leases);

  const std::shared_ptr<Connection> connection_;
  const Opened opened_;
  SliceFigures figures_;
  Turn growing_;
  std::shared_mutex returning_;
  Mutex owing_;
  std::vector<Leases> owed_ GPUMEM_GUARDED_BY(owing_);
};

}  // namespace gpumem::client
