#include "client/borrower.h"

#include <mutex>

#include "proto/lane.h"

namespace gpumem::client {

Result<Borrower::Opened> Borrower::open(Connection& connection, const BorrowerOptions& options) {
  if (options.label.size() > kLabelBytes) {
    return Error{Code::kInvalidArgument,
                 "the label is longer than " + std::to_string(kLabelBytes) + " bytes"};
  }
  auto device = connection.find_device(options.device);
  if (!device) return device.error();
  if (auto started = connection.pressure().start(); !started) return started.error();
  v1::OpenSliceRequest request;
  request.set_device(device->uuid);
  request.set_limit(options.limit.count);
  request.set_label(options.label);
  auto opened = connection.rpc().call(&v1::Broker::Stub::OpenSlice, request);
  if (!opened) return opened.error();
  if (opened->slice() == 0 || opened->granularity() == 0 || opened->limit() == 0) {
    close(connection, opened->slice());
    return Error{Code::kInternal, "the broker opened a slice without a size"};
  }
  return Opened{std::move(*device), opened->slice(), {opened->limit()}, {opened->granularity()}};
}

void Borrower::close(Connection& connection, std::uint64_t id) {
  v1::CloseSliceRequest request;
  request.set_slice(id);
  (void)connection.rpc().call(&v1::Broker::Stub::CloseSlice, request);
}

Borrower::Borrower(std::shared_ptr<Connection> connection, Opened opened, Bytes addresses)
    : connection_(std::move(connection)),
      opened_(std::move(opened)),
      figures_(connection_->figures(), opened_.device.index, addresses.count) {}

// The broker counts released memory until it has been told of the release. A growth requested before that
// would seem to exceed the slice's limit.
Bytes Borrower::committed_and_told() {
  const std::unique_lock nothing_on_its_way(returning_);
  return committed();
}

bool Borrower::owes() {
  const MutexLock lock(owing_);
  return !owed_.empty();
}

// Each batch is repeated unchanged. The broker takes all of a batch or nothing, and an earlier attempt that
// seemed to fail may have reached it.
Result<void> Borrower::return_leases(Leases leases) {
  std::vector<Leases> batches;
  {
    const MutexLock lock(owing_);
    batches.swap(owed_);
  }
  const std::size_t old = batches.size();
  if (!leases.empty()) batches.push_back(std::move(leases));
  for (std::size_t i = 0; i < batches.size(); ++i) {
    auto returned = return_batch(batches[i]);
    if (returned || (i < old && returned.error().code == Code::kNotFound)) continue;
    const Code code = returned.error().code;
    const bool again = code == Code::kUnavailable || code == Code::kDeadlineExceeded;
    const MutexLock lock(owing_);
    owed_.insert(owed_.end(), batches.begin() + static_cast<std::ptrdiff_t>(again ? i : i + 1),
                 batches.end());
    return returned;
  }
  return {};
}

Result<void> Borrower::return_batch(const Leases& leases) {
  v1::ReturnRequest request;
  request.set_slice(id());
  request.mutable_leases()->Add(leases.begin(), leases.end());
  auto returned = connection_->rpc().call(&v1::Broker::Stub::Return, request);
  if (!returned) return returned.error();
  return {};
}

}  // namespace gpumem::client
