#include "client/slice/slice_state.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <mutex>

#include "base/crash_point.h"
#include "client/session/exported_range.h"

namespace gpumem::client {
namespace {

constexpr Bytes kAll{std::numeric_limits<std::uint64_t>::max()};

Result<Addresses> reserve(const SharedDevice& device, Bytes limit, Bytes unit) {
  const auto size = limit.rounded_up(unit);
  if (!size) return Error{Code::kResourceExhausted, "more than 2^64 bytes cannot be reserved"};
  if (fails_at(CrashPoint::kClientReserve)) return errno_error(ENOMEM, "cuMemAddressReserve");
  return Addresses::reserve(device, *size, unit);
}

}  // namespace

Result<std::unique_ptr<SliceState>> SliceState::open(std::shared_ptr<Connection> connection,
                                                     const SliceOptions& options) {
  const bool in_host_store = options.device == kHostStore;
  const cuda::Driver* pinned = nullptr;
  if (in_host_store && options.pinned) {
    auto driver = connection->open_driver();
    if (!driver) return driver.error().in("pinned host memory needs the driver");
    pinned = *driver;
  }
  auto opened = Borrower::open(*connection, {.device = options.device,
                                             .limit = options.limit,
                                             .label = options.label,
                                             .in_host_store = in_host_store});
  if (!opened) return opened.error();
  auto addresses = reserve(opened->device, opened->limit, opened->alignment());
  if (!addresses) {
    close(*connection, opened->id);
    return addresses.error().in("no addresses for a slice of " + to_string(opened->limit));
  }
  return std::unique_ptr<SliceState>(new SliceState(std::move(connection), std::move(*opened),
                                                    std::move(*addresses), pinned, options.trim_on_pressure));
}

SliceState::SliceState(std::shared_ptr<Connection> connection, Opened opened, Addresses addresses,
                       const cuda::Driver* pinned, bool trimmed)
    : Borrower(std::move(connection), std::move(opened), addresses.size()),
      addresses_(std::move(addresses)),
      pinned_(pinned),
      trimmed_(trimmed) {
  if (trimmed_) this->connection().pressure().add(*this);
}

SliceState::~SliceState() {
  if (trimmed_) connection().pressure().remove(*this);
  Unmapped unmapped;
  {
    const MutexLock lock(mutex_);
    unmapped = unmap({}, kAll);
  }
  end(std::move(unmapped.leases), unmapped.all.has_value());
}

Result<void> SliceState::take(Portion portion, const std::function<Result<void>()>& rest) {
  const MutexLock lock(mutex_);
  if (fails_at(CrashPoint::kClientGrowMap)) return errno_error(ENOMEM, "cuMemMap");
  auto mapping = map(portion);
  if (!mapping) return mapping.error();
  crash_at(CrashPoint::kClientGrowMapped);
  portion.allocations.clear();  // the mapping alone keeps the memory from here on
  portion.files.clear();
  if (auto done = rest(); !done) return done;
  mappings_.push_back(std::move(*mapping));
  extents_.insert(extents_.end(), portion.extents.begin(), portion.extents.end());
  figures().set_committed(mappings_.back().end() - base());
  return {};
}

Result<Mapping> SliceState::map(const Portion& portion) {
  const cuda::Address at = base() + committed().count;
  if (!device().has_files()) {
    auto mapped = cuda::Mapping::create(*device().driver, at, portion.allocations, device().device->ordinal);
    return mapped ? Result<Mapping>(Mapping(std::move(*mapped))) : mapped.error();
  }
  std::vector<HostMapping::Extent> extents;
  for (std::size_t i = 0; i < portion.extents.size(); ++i)
    extents.push_back({portion.files[i].get(), portion.extents[i].size});
  auto mapped = HostMapping::create(at, extents, {.is_new = true, .pinned = pinned_});
  return mapped ? Result<Mapping>(Mapping(std::move(*mapped))) : mapped.error();
}

Result<Bytes> SliceState::shrink(Bytes target) {
  auto released = release(kAll, target);
  if (!released) return released;
  return committed();
}

Result<Bytes> SliceState::release(Bytes bytes, Bytes keep) {
  const std::shared_lock on_its_way(returning());
  Unmapped unmapped;
  {
    const MutexLock lock(mutex_);
    unmapped = unmap(keep, bytes);
  }
  crash_at(CrashPoint::kClientUnmapped);
  if (auto returned = return_leases(std::move(unmapped.leases)); !returned) return returned.error();
  if (!unmapped.all) return unmapped.all.error().in("memory could not be unmapped, so it is kept");
  return unmapped.bytes;
}

Result<lane::HandleBytes> SliceState::export_handle(Bytes offset, Bytes bytes, const ExportOptions& options) {
  if (auto here = usable(); !here) return here.error();
  const auto range = range_of(offset, bytes);
  if (!range) return range.error();
  return make_handle(range->handle(options));
}

Result<std::uint64_t> SliceState::publish(const std::string& name, Bytes offset, Bytes bytes,
                                          const PublishOptions& options) {
  if (auto here = usable(); !here) return here.error();
  if (auto right = check_publication(name, options); !right) return right.error();
  const auto range = range_of(offset, bytes);
  if (!range) return range.error();
  const auto published = connection().lane().call<lane::Published>(range->region(name, options));
  if (!published) return published.error();
  if (options.sealed) {
    if (auto sealed = seal(offset, bytes); !sealed)
      return sealed.error().in("'" + name + "' is published, but this process can still write to it");
  }
  return published->version;
}

// Nothing is written by mistake to what others read. What is not mapped any more needs no seal.
Result<void> SliceState::seal(Bytes offset, Bytes bytes) {
  const MutexLock lock(mutex_);
  const Bytes end = bytes.is_zero() ? committed() : offset + bytes;
  Bytes begin;
  for (const Portion::Extent& extent : extents_) {
    const Bytes next = begin + extent.size;
    if (next > offset && begin < end) {
      auto sealed = make_read_only(device(), base() + begin.count, extent.size);
      if (!sealed) return sealed;
    }
    begin = next;
  }
  return {};
}

Result<ExportedRange> SliceState::range_of(Bytes offset, Bytes bytes) {
  const MutexLock lock(mutex_);
  if (bytes.is_zero()) bytes = committed().minus(offset);
  const auto end = offset.plus(bytes);
  if (bytes.is_zero() || !end || *end > committed()) {
    return Error{Code::kInvalidArgument, to_string(bytes) + " from " + to_string(offset) +
                                             " on are not committed: " + to_string(committed()) + " are"};
  }
  ExportedRange range(id(), offset, *end);
  Bytes begin;
  for (const Portion::Extent& extent : extents_) {
    if (auto added = range.add(begin, extent.size, extent.lease); !added) return added.error();
    begin += extent.size;
  }
  return range;
}

// The mutex ensures that a trim that has not seen the new figure is over, and that the committed size is
// known, when this returns.
bool SliceState::set_in_use(Bytes in_use) {
  if (!trimmed_) {
    figures().set_in_use(in_use.count);
    return committed() >= in_use;
  }
  const MutexLock lock(mutex_);
  figures().set_in_use(in_use.count);
  return committed() >= in_use;
}

Bytes SliceState::trim(Bytes wanted) {
  const std::shared_lock on_its_way(returning());
  Unmapped unmapped;
  {
    const MutexLock lock(mutex_);
    unmapped = unmap({figures().wanted()}, wanted);
  }
  crash_at(CrashPoint::kClientUnmapped);
  if (!unmapped.leases.empty()) (void)return_leases(std::move(unmapped.leases));  // kept as owed if it fails
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
  figures().set_committed(mapped.count);
  return unmapped;
}

Result<void> SliceState::unmap_from(cuda::Address end) {
  while (!mappings_.empty() && mappings_.back().end() > end) {
    Mapping& last = mappings_.back();
    if (fails_at(CrashPoint::kClientUnmap)) return errno_error(EIO, "cuMemUnmap");
    if (auto gone = last.truncate(std::max(end, last.at())); !gone) return gone;
    if (last.size().is_zero()) mappings_.pop_back();
  }
  return {};
}

}  // namespace gpumem::client
