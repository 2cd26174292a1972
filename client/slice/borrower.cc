#include "client/slice/borrower.h"

#include <mutex>

#include "base/crash_point.h"
#include "base/text/printable.h"

namespace gpumem::client {
namespace {

/// `leases`  as many as one request takes.
lane::Return return_of(std::uint64_t slice, std::span<const std::uint64_t> leases) {
  lane::Return request;
  request.slice = slice;
  request.count = leases.size();
  std::ranges::copy(leases, request.leases.begin());
  return request;
}

}  // namespace

Result<Borrower::Opened> Borrower::open(Connection& connection, const BorrowerOptions& options) {
  if (options.label.size() > kLabelBytes) {
    return Error{Code::kInvalidArgument,
                 "the label is longer than " + std::to_string(kLabelBytes) + " bytes"};
  }
  auto device = options.in_host_store ? connection.find_host_store() : connection.find_device(options.device);
  if (!device) return device.error();
  const auto limit = connection.slice_limit(*device, options.limit);
  if (!limit) return limit.error();
  lane::OpenSlice request{};
  request.device = device->index;
  request.limit = limit->count;
  request.is_private = options.is_private ? 1 : 0;
  request.label = decltype(request.label)::of(options.label);
  Result<void> listens;  // nothing can be asked back of a slice that has lent nothing: no need to be first
  auto opened = connection.lane().call<lane::SliceOpened>(
      request, options.deadline.value_or(connection.lane().deadline()),
      [&] { listens = connection.pressure().start(); });
  if (!opened) return opened.error();
  crash_at(CrashPoint::kClientSliceOpened);
  if (!listens) {
    close(connection, opened->slice);
    return listens.error();
  }
  if (opened->slice == 0 || opened->granularity == 0 || opened->limit == 0) {
    close(connection, opened->slice);
    return Error{Code::kInternal, "the broker opened a slice without a size"};
  }
  return Opened{std::move(*device), opened->slice, {opened->limit}, {opened->granularity}};
}

void Borrower::close(Connection& connection, std::uint64_t id, Lane::Clock::time_point deadline) {
  crash_at(CrashPoint::kClientSliceClose);
  (void)connection.lane().call_or_tell_later(lane::CloseSlice{id}, deadline);
}

void Borrower::end(Leases leases, bool all) {
  const Lane::Clock::time_point deadline = connection_->lane().deadline();
  if (return_leases(std::move(leases), deadline)) {
    if (all) close(*connection_, id(), deadline);
    return;
  }
  const MutexLock lock(owing_);
  if (owed_.empty()) return;  // the broker does not take them back
  for (const Leases& batch : owed_) return_later(*connection_, id(), batch);
  if (all) connection_->lane().tell_later(lane::CloseSlice{id()});
}

Borrower::Borrower(std::shared_ptr<Connection> connection, Opened opened, Bytes addresses)
    : connection_(std::move(connection)),
      opened_(std::move(opened)),
      figures_(connection_->figures(), opened_.device.index, addresses.count) {}

// The broker counts released memory until it has been told of the release. A growth requested before that
// would seem to exceed the slice's limit.
Bytes Borrower::committed_and_told(std::chrono::steady_clock::time_point deadline) {
  if (owes()) (void)return_leases({}, std::min(deadline, connection_->lane().deadline()));
  const std::unique_lock nothing_on_its_way(returning_, deadline);
  return committed();
}

bool Borrower::owes() {
  const MutexLock lock(owing_);
  return !owed_.empty();
}

// Each batch is repeated unchanged. The broker takes all of a batch or nothing, and an earlier attempt that
// seemed to fail may have reached it.
Result<void> Borrower::return_leases(Leases leases, Lane::Clock::time_point deadline) {
  std::vector<Leases> batches;
  {
    const MutexLock lock(owing_);
    batches.swap(owed_);
  }
  const std::size_t old = batches.size();
  const std::span all(leases);
  for (std::size_t at = 0; at < all.size(); at += lane::kMostReturned) {
    const auto batch = all.subspan(at, std::min(lane::kMostReturned, all.size() - at));
    batches.emplace_back(batch.begin(), batch.end());
  }
  for (std::size_t i = 0; i < batches.size(); ++i) {
    auto returned = return_batch(batches[i], deadline);
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

Result<void> Borrower::return_batch(const Leases& leases, Lane::Clock::time_point deadline) {
  auto returned = connection_->lane().call(return_of(id(), leases), deadline);
  crash_at(CrashPoint::kClientReturned);
  if (!returned) return returned.error();
  return {};
}

Result<lane::HandleBytes> Borrower::make_handle(const lane::ExportHandle& request) {
  const auto exported = connection_->lane().call<lane::HandleExported>(request);
  if (!exported) return exported.error();
  crash_at(CrashPoint::kClientExported);
  return exported->handle;
}

void Borrower::return_later(Connection& connection, std::uint64_t slice,
                            std::span<const std::uint64_t> leases) {
  while (!leases.empty()) {
    const auto batch = leases.first(std::min(lane::kMostReturned, leases.size()));
    connection.lane().tell_later(return_of(slice, batch));
    leases = leases.subspan(batch.size());
  }
}

}  // namespace gpumem::client
