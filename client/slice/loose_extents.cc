#include "client/slice/loose_extents.h"

#include <shared_mutex>
#include <utility>

#include "base/system/large_stack.h"
#include "client/slice/growth.h"
#include "proto/lane/frames.h"

namespace gpumem::client {

Result<std::unique_ptr<LooseExtents>> LooseExtents::open(std::shared_ptr<Connection> connection,
                                                         const BorrowerOptions& options) {
  auto opened = Borrower::open(*connection, options);
  if (!opened) return opened.error();
  return std::unique_ptr<LooseExtents>(new LooseExtents(std::move(connection), std::move(*opened)));
}

LooseExtents::~LooseExtents() { end({}, committed().is_zero()); }

Result<std::vector<LooseExtents::Extent>, GrowError> LooseExtents::borrow(Bytes bytes,
                                                                          std::chrono::milliseconds wait,
                                                                          bool is_probe) {
  const cuda::BesideCaptures beside(*device().driver);
  auto grown = on_large_stack([&] {
    return grow_by(*this, {bytes, bytes, {lane::kOneExtent}, {}, is_probe}, {wait, {}, {}});
  });
  if (!grown) return grown.error();
  const MutexLock lock(mutex_);
  return std::move(arrived_.extract(std::this_thread::get_id()).mapped());
}

Result<void> LooseExtents::take(Portion portion, const std::function<Result<void>()>& rest) {
  if (auto done = rest(); !done) return done;
  const MutexLock lock(mutex_);
  std::vector<Extent>& arrived = arrived_[std::this_thread::get_id()];
  Bytes more;
  for (std::size_t i = 0; i < portion.extents.size(); ++i) {
    arrived.push_back({portion.extents[i].lease, std::move(portion.allocations[i])});
    more += portion.extents[i].size;
  }
  figures().set_committed((committed() + more).count);
  return {};
}

Result<OwnFd> LooseExtents::descriptor_of(std::uint64_t lease, Bytes size) {
  ExportedRange range(id(), {}, size);
  if (auto named = range.add({}, size, lease); !named) return named.error();
  const auto handle = make_handle(range.handle({}));
  if (!handle) return handle.error();
  Lane& lane = connection().lane();
  auto part = lane.import_handle({*handle});
  if (!part) {
    lane.tell_later(lane::RevokeHandle{*handle});
    return part.error();
  }
  lane.tell_later(lane::ReleaseImport{part->imported.import});
  if (part->lost_descriptors || part->descriptors.size() != 1)
    return Error{Code::kResourceExhausted, "this process has no room for a descriptor; raise RLIMIT_NOFILE"};
  return std::move(part->descriptors.front());
}

// The handles go first, then the broker is told.
void LooseExtents::give_back(std::vector<Extent> extents) {
  const std::shared_lock on_its_way(returning());
  Leases leases;
  Bytes less;
  for (const Extent& extent : extents) {
    leases.push_back(extent.lease);
    less += extent.memory.size();
  }
  extents.clear();
  {
    const MutexLock lock(mutex_);
    figures().set_committed((committed() - less).count);
  }
  (void)return_leases(std::move(leases));  // kept as owed if it fails
}

}  // namespace gpumem::client
