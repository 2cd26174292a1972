#include "client/slice/broker_backing.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <utility>

#include "base/system/large_stack.h"
#include "client/allocator/no_streams.h"
#include "client/slice/driver_streams.h"
#include "client/slice/growth.h"
#include "client/slice/host_backing.h"

namespace gpumem::client {
namespace {

using allocator::Address;
using allocator::Extent;

/// Addresses for each byte of the limit, so that there is a gap for any block however the memory lies.
constexpr std::uint64_t kTimes = 16;
/// With fewer, a block as large as the limit might find no gap.
constexpr std::uint64_t kFewestTimes = 2;
/// Devices have at least 47 bits of addresses, which several allocators share.
constexpr std::uint64_t kMostAddresses = std::uint64_t{1} << 44;

Result<cuda::Reservation> reserve_many(const SharedDevice& device, Bytes limit, Bytes unit) {
  if (limit.count > kMostAddresses / kFewestTimes) {
    return Error{Code::kInvalidArgument, "an allocator can have " +
                                             to_string(Bytes{kMostAddresses / kFewestTimes}) +
                                             " at most, not " + to_string(limit) + ": give it a limit"};
  }
  const std::uint64_t wanted = std::min(std::bit_ceil(limit.count * kTimes), kMostAddresses);
  Bytes size{std::max(wanted, unit.count)};
  for (;;) {
    auto reserved = cuda::Reservation::create(*device.driver, size, unit);
    if (reserved) return reserved;
    if (size.count / 2 < std::max(kFewestTimes * limit.count, unit.count)) {
      return reserved.error().in("no addresses for an allocator of " + to_string(limit) +
                                 ", which needs twice as many (ulimit -v, and what else is reserved)");
    }
    size.count /= 2;
  }
}

using allocator::Engine;
using allocator::EngineOptions;

/// The idle time of memory that is kept until the engine is closed.
constexpr std::chrono::milliseconds kNever = std::chrono::hours(24 * 365 * 100);

/// Trims an engine when the broker asks for memory, until the engine is closed.
class EngineTrim final : public Trimmable {
 public:
  EngineTrim(std::shared_ptr<Connection> connection, std::size_t device, Engine& engine)
      : connection_(std::move(connection)), device_(device), engine_(engine) {
    connection_->pressure().add(*this);
  }
  /// Waits for a trim in progress.
  ~EngineTrim() override { connection_->pressure().remove(*this); }

  std::size_t device_index() const override { return device_; }
  Bytes surplus() const override { return engine_.surplus(); }
  Bytes trim(Bytes wanted) override { return engine_.trim(wanted).value_or({}); }

 private:
  const std::shared_ptr<Connection> connection_;
  const std::size_t device_;
  Engine& engine_;
};

template <class Memory>
std::shared_ptr<Engine> make_engine(std::shared_ptr<Connection> connection, std::unique_ptr<Memory> memory,
                                    std::unique_ptr<allocator::StreamPort> streams,
                                    const EngineOptions& options) {
  const std::size_t device = static_cast<const Borrower&>(*memory).device().index;
  auto engine = std::make_unique<Engine>(std::move(memory), std::move(streams), options);
  if (options.idle != kNever)
    engine->attach(std::make_shared<EngineTrim>(std::move(connection), device, *engine));
  // A forked child leaves its copy alone: neither the engine's threads nor the driver are there.
  const std::uint64_t generation = process_generation();
  return {engine.release(), [generation](Engine* ended) {
            if (check_not_forked(generation)) delete ended;
          }};
}

}  // namespace

Result<std::unique_ptr<BrokerBacking>> BrokerBacking::open(std::shared_ptr<Connection> connection,
                                                           const BorrowerOptions& options) {
  auto opened = Borrower::open(*connection, options);
  if (!opened) return opened.error();
  auto reservation = reserve_many(opened->device, opened->limit, opened->alignment());
  if (!reservation) {
    close(*connection, opened->id);
    return reservation.error();
  }
  return std::unique_ptr<BrokerBacking>(new BrokerBacking(std::move(connection), std::move(*opened),
                                                          std::move(*reservation), options.shared_limit));
}

BrokerBacking::BrokerBacking(std::shared_ptr<Connection> connection, Opened opened,
                             cuda::Reservation reservation, std::shared_ptr<SharedLimit> shared_limit)
    : Borrower(std::move(connection), std::move(opened), reservation.size()),
      reservation_(std::move(reservation)),
      properties_{reservation_.base(), reservation_.size(),     granularity(), limit(),
                  device().uuid,       device().device->ordinal},
      shared_limit_(std::move(shared_limit)) {}

BrokerBacking::~BrokerBacking() {
  bool all = false;
  LetGo gone;
  {
    const MutexLock lock(mutex_);
    all = unmap_all();
    Leases leases;
    for (const auto& [lease, held] : extents_) leases.push_back(lease);
    gone = let_go(leases);
  }
  gone.memory.clear();
  end(std::move(gone.leases), all);
  if (shared_limit_) shared_limit_->give_back(gone.bytes);
}

Result<std::vector<Extent>, GrowError> BrokerBacking::obtain(const Request& request) {
  if (!shared_limit_) return grow(request);
  const Bytes wanted = std::max(request.min_bytes, granularity());
  const Bytes min_bytes = wanted.rounded_up(granularity()).value_or(wanted);
  const Bytes taken = shared_limit_->take(min_bytes, std::max(request.bytes, min_bytes));
  if (taken.is_zero()) {
    return GrowError({Code::kResourceExhausted, to_string(shared_limit_->left()) +
                                                    " are left of what the process may hold, and its free " +
                                                    "memory lies scattered"});
  }
  Request within = request;
  within.bytes = taken.rounded_down(granularity());
  auto grown = grow(within);
  Bytes more;
  if (grown) {
    for (const Extent& extent : *grown) more += extent.size;
  }
  shared_limit_->give_back(taken.minus(more));
  return grown;
}

Result<std::vector<Extent>, GrowError> BrokerBacking::grow(const Request& request) {
  return on_large_stack([&] { return grow_here(request); });
}

Result<std::vector<Extent>, GrowError> BrokerBacking::grow_here(const Request& request) {
  const cuda::BesideCaptures beside(driver());
  {
    const MutexLock lock(mutex_);
    arrived_.clear();
  }
  const Bytes min_bytes = std::max(request.min_bytes, granularity());
  const auto notice = tells_waits_ ? notice_of_wait(*this, request.bytes, request.wait) : nullptr;
  auto grown = grow_by(
      *this,
      {std::max(request.bytes, min_bytes), min_bytes, request.largest, request.taken, request.is_probe},
      {request.wait, {}, request.stop});
  if (!grown) return grown.error();
  const MutexLock lock(mutex_);
  return std::exchange(arrived_, {});
}

Result<void> BrokerBacking::take(Portion portion, const std::function<Result<void>()>& rest) {
  if (auto done = rest(); !done) return done;
  const MutexLock lock(mutex_);
  Bytes more;
  for (std::size_t i = 0; i < portion.extents.size(); ++i) {
    const auto [lease, size] = portion.extents[i];
    extents_[lease].memory = std::move(portion.allocations[i]);
    arrived_.push_back({lease, size});
    more += size;
  }
  figures().set_committed((committed() + more).count);
  return {};
}

Result<void> BrokerBacking::map(Address at, std::span<const Extent> extents) {
  const cuda::BesideCaptures beside(driver());
  const MutexLock lock(mutex_);
  return map_locked(at, extents);
}

Result<void> BrokerBacking::map_locked(Address at, std::span<const Extent> extents) {
  std::vector<const cuda::Allocation*> memory;
  for (const Extent& extent : extents) {
    const auto found = extents_.find(extent.id);
    if (found == extents_.end()) {
      return Error{Code::kInternal, "extent " + std::to_string(extent.id) + " is not there to be mapped"};
    }
    memory.push_back(&found->second.memory);
  }
  if (memory.empty()) return {};
  if (auto mapped = cuda::map(driver(), at, memory, properties_.ordinal); !mapped) return mapped;
  if (auto allowed = allow_peers(at, memory); !allowed) return allowed;
  for (const Extent& extent : extents) {
    Held& held = extents_.at(extent.id);
    ++held.mappings;
    mapped_.emplace(at, extent.id);
    at += held.memory.size().count;
  }
  return {};
}

Result<void> BrokerBacking::allow_peers(Address at, std::span<const cuda::Allocation* const> memory) {
  Bytes size;
  for (const cuda::Allocation* one : memory) size += one->size();
  for (const int peer : peers_) {
    if (auto allowed = cuda::set_access(driver(), at, size, peer); !allowed) {
      static_cast<void>(cuda::unmap(driver(), at, size));  // nothing else is left to do
      return allowed;
    }
  }
  return {};
}

Result<void> BrokerBacking::allow(int ordinal) {
  const cuda::BesideCaptures beside(driver());
  const MutexLock lock(mutex_);
  if (device().is_host()) return {};  // all devices have the memory mapped
  if (ordinal == properties_.ordinal || std::ranges::find(peers_, ordinal) != peers_.end()) return {};
  for (const auto& [at, lease] : mapped_) {
    auto allowed = cuda::set_access(driver(), at, extents_.at(lease).memory.size(), ordinal);
    if (!allowed) return allowed;
  }
  peers_.push_back(ordinal);
  return {};
}

Result<void> BrokerBacking::unmap(Address at, Bytes bytes) {
  const cuda::BesideCaptures beside(driver());
  const MutexLock lock(mutex_);
  return unmap_locked(at, bytes);
}

Result<void> BrokerBacking::unmap_locked(Address at, Bytes bytes) {
  auto unmapped = cuda::unmap(driver(), at, bytes);
  if (!unmapped) return unmapped.error().in("memory could not be unmapped, so it is kept");
  const auto first = mapped_.lower_bound(at);
  const auto last = mapped_.lower_bound(at + bytes.count);
  for (auto it = first; it != last; ++it) --extents_.at(it->second).mappings;
  mapped_.erase(first, last);
  return {};
}

bool BrokerBacking::unmap_all() {
  bool all = true;
  for (auto it = mapped_.begin(); it != mapped_.end();) {
    const Address from = it->first;
    Address to = from;
    for (; it != mapped_.end() && it->first == to; ++it) to += extents_.at(it->second).memory.size().count;
    if (!unmap_locked(from, {to - from})) all = false;
  }
  return all;
}

void BrokerBacking::give_back(std::vector<Extent> extents) {
  const cuda::BesideCaptures beside(driver());
  const std::shared_lock on_its_way(returning());
  Leases leases;
  for (const Extent& extent : extents) leases.push_back(extent.id);
  LetGo gone;
  {
    const MutexLock lock(mutex_);
    gone = let_go(leases);
  }
  gone.memory.clear();
  (void)return_leases(std::move(gone.leases));              // kept as owed if it fails
  if (shared_limit_) shared_limit_->give_back(gone.bytes);  // later growths reach the broker after the return
}

Result<BrokerBacking::HandleBytes> BrokerBacking::export_range(Address at, Bytes bytes,
                                                               const ExportOptions& options) {
  if (auto here = usable(); !here) return here.error();
  const auto range = range_of(at, bytes);
  if (!range) return range.error();
  return make_handle(range->handle(options));
}

Result<ExportedRange> BrokerBacking::range_of(Address at, Bytes bytes) {
  const MutexLock lock(mutex_);
  ExportedRange range(id(), {at}, {at + bytes.count});
  auto extent = mapped_.upper_bound(at);
  if (extent != mapped_.begin()) --extent;
  for (; extent != mapped_.end() && extent->first < at + bytes.count; ++extent) {
    const Bytes size = extents_.at(extent->second).memory.size();
    if (auto added = range.add({extent->first}, size, extent->second); !added) return added.error();
  }
  return range;
}

BrokerBacking::LetGo BrokerBacking::let_go(const Leases& leases) {
  LetGo gone;
  for (const LeaseId lease : leases) {
    const auto found = extents_.find(lease);
    if (found == extents_.end() || found->second.mappings != 0) continue;
    gone.bytes += found->second.memory.size();
    gone.memory.push_back(std::move(found->second.memory));
    gone.leases.push_back(lease);
    extents_.erase(found);
  }
  figures().set_committed((committed() - gone.bytes).count);
  return gone;
}

namespace {

// Memory that this process gives back stays charged to its tenant until the process ends, because the driver
// does not tell whether it is still mapped. So it is given back when the allocator is closed, or by trim().
Result<std::shared_ptr<Engine>> open_engine_of_driver(std::shared_ptr<Connection> connection,
                                                      const BorrowerOptions& options, EngineOptions engine,
                                                      bool is_pageable) {
  if (is_pageable) {
    return Error{
        Code::kInvalidArgument,
        "the driver allocates and pins the memory of this host store, so none of it is pageable: open "
        "it pinned, or have the administrator set kind = \"memfd\" in [host] of gpumemd.toml"};
  }
  auto memory = BrokerBacking::open(connection, options);
  if (!memory) return memory.error();
  engine.idle = kNever;
  return make_engine(std::move(connection), std::move(*memory), std::make_unique<allocator::NoStreams>(),
                     engine);
}

}  // namespace

Result<std::shared_ptr<Engine>> open_engine(std::shared_ptr<Connection> connection,
                                            const AllocatorOptions& options,
                                            std::shared_ptr<SharedLimit> shared_limit,
                                            std::optional<Lane::Clock::time_point> deadline,
                                            bool announces_ends) {
  if (auto usable = connection->usable(); !usable) return usable.error();
  allocator::ThreadCache::prepare();  // before the library's own thread starts
  const bool in_host_store = options.device == kHostStore;
  const BorrowerOptions borrower{options.device, options.limit, options.label, std::move(shared_limit),
                                 deadline,       in_host_store, in_host_store};
  const EngineOptions engine{connection->wait_of(options.wait), options.idle};
  if (in_host_store && connection->welcome().is_host_of_driver)
    return open_engine_of_driver(std::move(connection), borrower, engine, options.pageable);
  if (in_host_store) {
    auto memory = HostBacking::open(connection, borrower, options.pageable);
    if (!memory) return memory.error();
    return make_engine(std::move(connection), std::move(*memory), std::make_unique<allocator::NoStreams>(),
                       engine);
  }
  auto memory = BrokerBacking::open(connection, borrower);
  if (!memory) return memory.error();
  (*memory)->tell_waits(!options.wait);
  const SharedDevice& device = static_cast<const Borrower&>(**memory).device();
  auto streams = std::make_unique<DriverStreams>(*device.driver, device.device->ordinal, announces_ends);
  return make_engine(std::move(connection), std::move(*memory), std::move(streams), engine);
}

}  // namespace gpumem::client
