#include "client/loose_extents.h"

#include <algorithm>
#include <iterator>
#include <shared_mutex>
#include <utility>

#include "client/growth.h"
#include "proto/lane/frames.h"

namespace gpumem::client {

namespace {

/// How often idle memory is looked for, in the time for which it is kept.
constexpr int kLooks = 4;

Bytes size_of(const LooseExtents::Extents& extents) {
  Bytes all;
  for (const LooseExtents::Extent& extent : extents) all += extent.memory.size();
  return all;
}

}  // namespace

Result<std::unique_ptr<LooseExtents>> LooseExtents::open(std::shared_ptr<Connection> connection,
                                                         const BorrowerOptions& options,
                                                         std::chrono::milliseconds idle) {
  auto opened = Borrower::open(*connection, options);
  if (!opened) return opened.error();
  return std::unique_ptr<LooseExtents>(
      new LooseExtents(std::move(connection), std::move(*opened), options.room, idle));
}

LooseExtents::LooseExtents(std::shared_ptr<Connection> connection, Opened opened, std::shared_ptr<Room> room,
                           std::chrono::milliseconds idle)
    : Borrower(std::move(connection), std::move(opened), Bytes{}),
      room_(std::move(room)),
      idle_(idle),
      returns_idle_({.period = std::max(idle / kLooks, std::chrono::milliseconds(1))},
                    [this] { return give_back_idle(); }) {
  this->connection().pressure().add(*this);
}

LooseExtents::~LooseExtents() {
  connection().pressure().remove(*this);
  returns_idle_.end();
  (void)trim(surplus());
  end({}, committed().is_zero());
}

Result<LooseExtents::Extents, GrowError> LooseExtents::borrow(Bytes bytes, std::chrono::milliseconds wait) {
  const cuda::BesideCaptures beside(*device().driver);
  auto grown = grow_by(*this, {bytes, bytes, {lane::kOneExtent}}, {wait, {}, {}});
  if (!grown) return grown.error();
  const MutexLock lock(mutex_);
  return std::move(arrived_.extract(std::this_thread::get_id()).mapped());
}

Result<void> LooseExtents::take(Portion portion, const std::function<Result<void>()>& rest) {
  const unsigned resumed = connection().lane().resumed();  // before: another broker may come any time
  if (auto done = rest(); !done) return done;
  const MutexLock lock(mutex_);
  Extents& arrived = arrived_[std::this_thread::get_id()];
  Bytes more;
  for (std::size_t i = 0; i < portion.extents.size(); ++i) {
    arrived.push_back({portion.extents[i].lease, std::move(portion.allocations[i]), resumed});
    more += portion.extents[i].size;
  }
  figures().set_committed((committed() + more).count);
  publish();
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
void LooseExtents::give_back(Extents extents) {
  const cuda::BesideCaptures beside(*device().driver);
  const std::shared_lock on_its_way(returning());
  Leases leases;
  const Bytes less = size_of(extents);
  for (const Extent& extent : extents) leases.push_back(extent.lease);
  extents.clear();
  {
    const MutexLock lock(mutex_);
    figures().set_committed((committed() - less).count);
    publish();
  }
  (void)return_leases(std::move(leases));  // kept as owed if it fails
}

void LooseExtents::keep(Extents extents) {
  Lane& lane = connection().lane();
  const bool is_of_now = !lane.is_closed() && extents.front().resumed == lane.resumed();
  if (!is_of_now || !returns_idle_.begin()) return give_back_kept(std::move(extents));
  const Bytes bytes = size_of(extents);
  const MutexLock lock(mutex_);
  kept_bytes_ += bytes;
  kept_.emplace(bytes, Kept{std::move(extents), Clock::now()});
  publish();
}

LooseExtents::Extents LooseExtents::take_kept(Bytes bytes) {
  const unsigned resumed = connection().lane().resumed();
  const MutexLock lock(mutex_);
  const auto [first, end] = kept_.equal_range(bytes);
  for (auto it = end; it != first;) {  // the latest first: the others may go back
    --it;
    if (it->second.extents.front().resumed == resumed) return release(it);
  }
  return {};
}

LooseExtents::Extents LooseExtents::release(BySize::iterator which) {
  kept_bytes_ = kept_bytes_ - which->first;
  Extents extents = std::move(which->second.extents);
  kept_.erase(which);
  publish();
  return extents;
}

Bytes LooseExtents::surplus() const {
  const MutexLock lock(mutex_);
  return kept_bytes_;
}

Bytes LooseExtents::trim(Bytes wanted) {
  Extents over;
  Bytes given;
  {
    const MutexLock lock(mutex_);
    while (given < wanted && !kept_.empty()) {
      const auto largest = std::prev(kept_.end());
      given += largest->first;
      std::ranges::move(release(largest), std::back_inserter(over));
    }
  }
  give_back_kept(std::move(over));
  return given;
}

void LooseExtents::give_back_kept(Extents extents) {
  if (extents.empty()) return;
  const Bytes bytes = size_of(extents);
  give_back(std::move(extents));
  if (room_ != nullptr) room_->give_back(bytes);
}

bool LooseExtents::give_back_idle() {
  Extents over;
  {
    const auto since = Clock::now() - idle_;
    const MutexLock lock(mutex_);
    for (auto it = kept_.begin(); it != kept_.end();) {
      const auto which = it++;
      if (which->second.since <= since) std::ranges::move(release(which), std::back_inserter(over));
    }
  }
  give_back_kept(std::move(over));
  return true;
}

void LooseExtents::publish() { figures().set_in_use((committed() - kept_bytes_).count); }

}  // namespace gpumem::client
