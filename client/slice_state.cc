#include "client/slice_state.h"

#include <algorithm>

#include "client/grant.h"
#include "proto/lane.h"

namespace gpumem::client {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Long enough for everyone, short enough to be added to a point in time.
constexpr milliseconds kLongestWait = std::chrono::hours(24 * 365);

void close_slice(Connection& connection, std::uint64_t id) {
  v1::CloseSliceRequest request;
  request.set_slice(id);
  (void)connection.rpc().call(&v1::Broker::Stub::CloseSlice, request);  // the session's end closes it as well
}

Result<cuda::Reservation> reserve(const SharedDevice& device, const v1::OpenSliceResponse& opened) {
  const Bytes unit = std::max(Bytes{opened.granularity()}, device.device->granularity);
  const auto size = Bytes{opened.limit()}.rounded_up(unit);
  if (opened.slice() == 0 || opened.granularity() == 0 || opened.limit() == 0 || !size) {
    return Error{Code::kInternal, "the broker opened a slice without a size"};
  }
  return cuda::Reservation::create(*device.driver, *size, unit);
}

}  // namespace

Result<std::unique_ptr<SliceState>> SliceState::open(std::shared_ptr<Connection> connection,
                                                     const SliceOptions& options) {
  if (options.label.size() > kLabelBytes) {
    return Error{Code::kInvalidArgument,
                 "the label is longer than " + std::to_string(kLabelBytes) + " bytes"};
  }
  auto device = connection->find_device(options.device);
  if (!device) return device.error();
  v1::OpenSliceRequest request;
  request.set_device(device->uuid);
  request.set_limit(options.limit.count);
  request.set_label(options.label);
  auto opened = connection->rpc().call(&v1::Broker::Stub::OpenSlice, request);
  if (!opened) return opened.error();
  auto reservation = reserve(*device, *opened);
  if (!reservation) {
    close_slice(*connection, opened->slice());
    return reservation.error().in("no addresses for a slice of " + to_string(Bytes{opened->limit()}));
  }
  return std::unique_ptr<SliceState>(
      new SliceState(std::move(connection), std::move(*device), *opened, std::move(*reservation)));
}

SliceState::SliceState(std::shared_ptr<Connection> connection, SharedDevice device,
                       const v1::OpenSliceResponse& opened, cuda::Reservation reservation)
    : connection_(std::move(connection)),
      device_(std::move(device)),
      id_(opened.slice()),
      limit_{opened.limit()},
      granularity_{opened.granularity()},
      reservation_(std::move(reservation)),
      figures_(connection_->figures(), device_.index, reservation_.size().count) {}

SliceState::~SliceState() {
  Unmapped unmapped = unmap_down_to({});
  if (give_back(std::move(unmapped.leases)) && unmapped.all) close_slice(*connection_, id_);
}

Result<Bytes, GrowError> SliceState::grow(Bytes target, milliseconds wait) {
  const auto goal = target.rounded_up(granularity_);
  if (!goal) return GrowError(Error{Code::kInvalidArgument, "more than 2^64 bytes cannot be asked for"});
  wait = std::clamp(wait, milliseconds::zero(), kLongestWait);
  const auto deadline = Clock::now() + wait;
  const std::unique_lock turn(growing_, deadline + connection_->timeout());
  if (!turn)
    return GrowError(Error{Code::kDeadlineExceeded, "another growth of this slice is still waiting"});
  for (;;) {  // a shrink may come in between
    const Bytes have = committed_and_told();
    if (have >= *goal) return have;
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    auto grown = grow_by(*goal - have, std::max(left, milliseconds::zero()));
    if (!grown) return grown.error();
  }
}

// What is unmapped already is the broker's to count until it has been told: a growth asked for in between
// would seem to pass the slice's limit.
Bytes SliceState::committed_and_told() {
  const std::unique_lock nothing_on_its_way(returning_);
  return committed();
}

Result<void, GrowError> SliceState::grow_by(Bytes bytes, milliseconds wait) {
  v1::GrowRequest request;
  request.set_slice(id_);
  request.set_bytes(bytes.count);
  request.set_wait_ms(static_cast<std::uint64_t>(wait.count()));
  Lane::Growth growth(connection_->lane());
  auto granted = connection_->rpc().call(&v1::Broker::Stub::Grow, request, wait);
  if (!granted) return granted.error();
  if (auto taken = take(*granted, bytes); !taken) {
    Leases leases;
    for (const v1::Lease& lease : granted->leases()) leases.push_back(lease.id());
    (void)give_back(std::move(leases));  // kept as owed if it fails
    return GrowError(taken.error().in("memory was granted but could not be mapped"));
  }
  growth.succeeded();
  return {};
}

Result<void> SliceState::take(const v1::GrowResponse& granted, Bytes asked) {
  auto allocations = receive_grant(connection_->lane(), *device_.driver, granted, {asked, granularity_});
  if (!allocations) return allocations.error();
  const MutexLock lock(mutex_);
  auto mapping = cuda::Mapping::create(*device_.driver, base() + committed().count, *allocations,
                                       device_.device->ordinal);
  if (!mapping) return mapping.error();
  allocations->clear();  // the mapping alone keeps the memory from here on
  if (auto told = connection_->lane().accept(granted.grant()); !told) return told.error();
  mappings_.push_back(std::move(*mapping));
  for (const v1::Lease& lease : granted.leases()) extents_.push_back({lease.id(), {lease.size()}});
  figures_.set_committed((committed() + asked).count);
  return {};
}

Result<Bytes> SliceState::shrink(Bytes target) {
  const std::shared_lock on_its_way(returning_);
  Unmapped unmapped = unmap_down_to(target);
  if (auto returned = give_back(std::move(unmapped.leases)); !returned) return returned.error();
  if (!unmapped.all) return unmapped.all.error().in("memory could not be unmapped, so it is kept");
  return committed();
}

SliceState::Unmapped SliceState::unmap_down_to(Bytes target) {
  const MutexLock lock(mutex_);
  Bytes stays = committed();
  for (auto last = extents_.rbegin(); last != extents_.rend() && stays.minus(last->size) >= target; ++last) {
    stays -= last->size;
  }
  Unmapped unmapped{{}, unmap_from(base() + stays.count)};
  const Bytes mapped{mappings_.empty() ? 0 : mappings_.back().end() - base()};
  for (Bytes left = committed(); left > mapped; extents_.pop_back()) {
    unmapped.leases.push_back(extents_.back().lease);
    left -= extents_.back().size;
  }
  figures_.set_committed(mapped.count);
  return unmapped;
}

Result<void> SliceState::unmap_from(cuda::Address end) {
  while (!mappings_.empty() && mappings_.back().end() > end) {
    cuda::Mapping& last = mappings_.back();
    if (auto gone = last.truncate(std::max(end, last.at())); !gone) return gone;
    if (last.size().is_zero()) mappings_.pop_back();
  }
  return {};
}

// Each batch is asked for as it was the first time: the broker takes all of it or nothing, and an earlier
// attempt that seemed to fail may have reached it.
Result<void> SliceState::give_back(Leases leases) {
  std::vector<Leases> batches;
  {
    const MutexLock lock(mutex_);
    batches.swap(owed_);
  }
  const std::size_t old = batches.size();
  if (!leases.empty()) batches.push_back(std::move(leases));
  for (std::size_t i = 0; i < batches.size(); ++i) {
    auto returned = return_batch(batches[i]);
    if (returned || (i < old && returned.error().code == Code::kNotFound)) continue;
    const Code code = returned.error().code;
    const bool again = code == Code::kUnavailable || code == Code::kDeadlineExceeded;
    const MutexLock lock(mutex_);
    owed_.insert(owed_.end(), batches.begin() + static_cast<std::ptrdiff_t>(again ? i : i + 1),
                 batches.end());
    return returned;
  }
  return {};
}

Result<void> SliceState::return_batch(const Leases& leases) {
  v1::ReturnRequest request;
  request.set_slice(id_);
  request.mutable_leases()->Add(leases.begin(), leases.end());
  auto returned = connection_->rpc().call(&v1::Broker::Stub::Return, request);
  if (!returned) return returned.error();
  return {};
}

}  // namespace gpumem::client
