#include "client/slice_state.h"

#include <algorithm>
#include <limits>
#include <mutex>

#include "proto/lane.h"

namespace gpumem::client {
namespace {

constexpr Bytes kAll{std::numeric_limits<std::uint64_t>::max()};

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
  if (auto started = connection->pressure().start(); !started) return started.error();
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
  return std::unique_ptr<SliceState>(new SliceState(std::move(connection), std::move(*device), *opened,
                                                    std::move(*reservation), options.trim_on_pressure));
}

SliceState::SliceState(std::shared_ptr<Connection> connection, SharedDevice device,
                       const v1::OpenSliceResponse& opened, cuda::Reservation reservation, bool trimmed)
    : connection_(std::move(connection)),
      device_(std::move(device)),
      id_(opened.slice()),
      limit_{opened.limit()},
      granularity_{opened.granularity()},
      reservation_(std::move(reservation)),
      trimmed_(trimmed),
      figures_(connection_->figures(), device_.index, reservation_.size().count) {
  if (trimmed_) connection_->pressure().add(*this);
}

SliceState::~SliceState() {
  if (trimmed_) connection_->pressure().remove(*this);
  Unmapped unmapped;
  {
    const MutexLock lock(mutex_);
    unmapped = unmap({}, kAll);
  }
  if (give_back(std::move(unmapped.leases)) && unmapped.all) close_slice(*connection_, id_);
}

// What is unmapped already is the broker's to count until it has been told: a growth asked for in between
// would seem to pass the slice's limit.
Bytes SliceState::committed_and_told() {
  const std::unique_lock nothing_on_its_way(returning_);
  return committed();
}

Result<void> SliceState::take(Portion portion, const std::function<Result<void>()>& rest) {
  const MutexLock lock(mutex_);
  auto mapping = cuda::Mapping::create(*device_.driver, base() + committed().count, portion.allocations,
                                       device_.device->ordinal);
  if (!mapping) return mapping.error();
  portion.allocations.clear();  // the mapping alone keeps the memory from here on
  if (auto done = rest(); !done) return done;
  mappings_.push_back(std::move(*mapping));
  extents_.insert(extents_.end(), portion.extents.begin(), portion.extents.end());
  figures_.set_committed(mappings_.back().end() - base());
  return {};
}

Result<Bytes> SliceState::shrink(Bytes target) {
  auto released = release(kAll, target);
  if (!released) return released;
  return committed();
}

Result<Bytes> SliceState::release(Bytes bytes, Bytes keep) {
  const std::shared_lock on_its_way(returning_);
  Unmapped unmapped;
  {
    const MutexLock lock(mutex_);
    unmapped = unmap(keep, bytes);
  }
  if (auto returned = give_back(std::move(unmapped.leases)); !returned) return returned.error();
  if (!unmapped.all) return unmapped.all.error().in("memory could not be unmapped, so it is kept");
  return unmapped.bytes;
}

// The mutex: a trim that has not seen the new figure is over, and what is committed is known, when this
// returns.
bool SliceState::set_in_use(Bytes in_use) {
  if (!trimmed_) {
    figures_.set_in_use(in_use.count);
    return committed() >= in_use;
  }
  const MutexLock lock(mutex_);
  figures_.set_in_use(in_use.count);
  return committed() >= in_use;
}

Bytes SliceState::trim(Bytes wanted) {
  const std::shared_lock on_its_way(returning_);
  Unmapped unmapped;
  {
    const MutexLock lock(mutex_);
    unmapped = unmap({figures_.wanted()}, wanted);
  }
  if (!unmapped.leases.empty()) (void)give_back(std::move(unmapped.leases));  // kept as owed if it fails
  return unmapped.bytes;
}

SliceState::Unmapped SliceState::unmap(Bytes floor, Bytes enough) {
  const Bytes before = committed();
  Bytes stays = before;
  for (auto last = extents_.rbegin();
       last != extents_.rend() && stays.minus(last->size) >= floor && before - stays < enough; ++last) {
    stays -= last->size;
  }
  Unmapped unmapped;
  unmapped.all = unmap_from(base() + stays.count);
  const Bytes mapped{mappings_.empty() ? 0 : mappings_.back().end() - base()};
  for (Bytes left = before; left > mapped; extents_.pop_back()) {
    unmapped.leases.push_back(extents_.back().lease);
    left -= extents_.back().size;
  }
  unmapped.bytes = before - mapped;
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
