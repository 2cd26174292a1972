#include "client/session/import_state.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <stop_token>
#include <utility>

#include "base/crash_point.h"
#include "base/system/large_stack.h"
#include "client/lane/lane.h"
#include "client/process/status.h"
#include "client/session/connection.h"
#include "client/session/exported_range.h"

namespace gpumem::client {
namespace {

std::chrono::milliseconds bounded(std::chrono::milliseconds time) {
  return std::clamp(time, std::chrono::milliseconds::zero(), kLongestWait);
}
std::uint64_t nanoseconds_of(std::chrono::milliseconds time) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(bounded(time)).count());
}

/// Of a request that waits for a region for `wait`.
GrowTerms terms_of(const Connection& connection, std::chrono::milliseconds wait = {},
                   std::stop_token stop = {}) {
  const Lane::Clock::time_point now = Lane::Clock::now();
  return {now + connection.timeout(), std::move(stop), now + bounded(wait) + connection.timeout()};
}

Result<void> check_descriptors(const ImportedPart& part) {
  if (part.lost_descriptors) {
    return Error{Code::kResourceExhausted,
                 "this process has no room for the descriptors of the memory; raise RLIMIT_NOFILE"};
  }
  if (part.descriptors.size() != part.imported.count) return protocol_error("extents without descriptors");
  return {};
}

Result<std::vector<cuda::Allocation>> import_extents(const cuda::Driver& driver, const ImportedPart& part) {
  std::vector<cuda::Allocation> allocations;
  for (std::size_t i = 0; i < part.descriptors.size(); ++i) {
    if (fails_at(CrashPoint::kClientImport)) return errno_error(EMFILE, "cuMemImportFromShareableHandle");
    auto imported = cuda::Allocation::import(driver, part.descriptors[i].get(), {part.imported.sizes[i]});
    if (!imported) return imported.error();
    allocations.push_back(std::move(*imported));
  }
  return allocations;
}

/// The size of all extents. Errors  kInternal: the range does not lie in them.
Result<Bytes> size_of(const lane::Imported& imported) {
  Bytes sum;
  for (std::uint64_t i = 0; i < imported.count; ++i) {
    const auto more = sum.plus({imported.sizes[i]});
    if (!more) return protocol_error("an import of more than 2^64 bytes");
    sum = *more;
  }
  const auto end = Bytes{imported.offset}.plus({imported.bytes});
  if (imported.bytes == 0 || !end || *end > sum) return protocol_error("an import beyond its extents");
  return sum;
}

/// The devices that an import is of, and for.
struct SeenDevices {
  std::optional<SharedDevice> of;   ///< none: whichever
  std::vector<SharedDevice> peers;  ///< that use the memory, too
};

/// Errors  kNotFound: one that is not lent, or that this process does not see.
Result<SeenDevices> seen_devices(const Connection& connection, const RegionOptions& options) {
  SeenDevices seen;
  if (!options.device.empty()) {
    auto device = connection.find_memory(options.device);
    if (!device) return device.error().in("the region cannot be mapped here");
    seen.of = std::move(*device);
  }
  for (const std::string& peer : options.access) {
    auto device = connection.find_device(peer);
    if (!device) return device.error().in("the region cannot be mapped for it");
    seen.peers.push_back(std::move(*device));
  }
  return seen;
}

constexpr Bytes kHostAlignment = mebibytes(2);  // for huge pages

lane::MapAs mapper(bool writable) { return writable ? lane::MapAs::kWriter : lane::MapAs::kReader; }

cuda::Access access_of(bool writable) { return writable ? cuda::Access::kReadWrite : cuda::Access::kRead; }

Error not_mapped() { return {Code::kFailedPrecondition, "the region is unmapped: map it again first"}; }

/// Whether each of the peers can use the device's memory. Errors  kFailedPrecondition: one cannot.
Result<void> check_peers(const SharedDevice& device, const std::vector<SharedDevice>& peers) {
  if (device.is_host() && !peers.empty()) {
    return Error{Code::kInvalidArgument,
                 "the region is memory of the machine, which no device accesses as a peer: map it pinned, "
                 "and all devices of the process use it"};
  }
  for (const SharedDevice& peer : peers) {
    if (peer.uuid == device.uuid) continue;
    const auto can = cuda::can_access(*device.driver, peer.device->ordinal, device.device->ordinal);
    if (can && *can) continue;
    return Error{Code::kFailedPrecondition, "device " + peer.uuid +
                                                " has no peer access to the memory of device " + device.uuid +
                                                (can ? "" : ": " + can.error().message)};
  }
  return {};
}

/// Before a region is waited for. Errors  kPermissionDenied: another tenant's region, whether or not there is
/// one.
Result<void> check_adoptable(Connection& connection, const lane::Text<128>& owner, const std::string& name) {
  constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  const auto told = connection.lane().map_region(
      {owner, lane::RegionName::of(name), kNone, lane::MapAs::kOwner, 0}, terms_of(connection));
  if (told || told.error().code == Code::kNotFound) return {};
  return told.error();
}

/// Errors  kInvalidArgument (name), kCancelled, those of Connection::usable.
Result<void> check_ready(Connection& connection, const std::string& name, const std::stop_token& stop) {
  if (auto right = check_name(name); !right) return right;
  if (auto usable = connection.usable(); !usable) return usable;
  if (auto started = connection.pressure().start(); !started) return started;
  if (stop.stop_requested()) return called_off();
  return {};
}

}  // namespace

Result<std::unique_ptr<ImportState>> ImportState::open(std::shared_ptr<Connection> connection,
                                                       const lane::HandleBytes& handle) {
  if (auto usable = connection->usable(); !usable) return usable.error();
  if (auto started = connection->pressure().start(); !started) return started.error();
  auto part = connection->lane().import_handle({handle});
  if (!part) return part.error();
  return open(std::move(connection), std::move(*part), Manner{});
}

Result<std::unique_ptr<ImportState>> ImportState::open(std::shared_ptr<Connection> connection,
                                                       const std::string& name,
                                                       const RegionOptions& options) {
  if (auto right = check_owner(options.owner); !right) return right.error();
  if (auto ready = check_ready(*connection, name, options.stop); !ready) return ready.error();
  const auto devices = seen_devices(*connection, options);
  if (!devices) return devices.error();
  const lane::Text<128> owner = lane::Text<128>::of(options.owner);
  if (options.writable && !options.owner.empty() && owner.view() != connection->welcome().tenant) {
    return Error{Code::kPermissionDenied, "a region is mapped writable by its own tenant alone, which is '" +
                                              options.owner + "': map it for reading"};
  }
  if (options.adopt && !options.owner.empty()) {
    if (auto able = check_adoptable(*connection, owner, name); !able) return able.error();
  }
  const lane::MapRegion asked{owner,
                              lane::RegionName::of(name),
                              options.version,
                              mapper(options.writable),
                              nanoseconds_of(options.wait),
                              devices->of ? std::uint64_t{devices->of->index} : lane::kAnyDevice,
                              options.newer_than};
  auto mapped = connection->lane().map_region(asked, terms_of(*connection, options.wait, options.stop));
  if (!mapped) return mapped.error();
  auto state = open(std::move(connection), std::move(*mapped),
                    {access_of(options.writable), devices->peers, {asked.owner, asked.name}, options.pinned});
  if (!state || !options.adopt) return state;
  if (auto adopted = (*state)->adopt(); !adopted) return adopted.error();
  return state;
}

// As an owner once it is mapped, since what a session has adopted goes when it is not mapped there: a region
// that cannot be mapped stays kept.
Result<void> ImportState::adopt() {
  const lane::MapRegion request{named_.owner, named_.name, version_, lane::MapAs::kOwner, 0};
  auto again = connection_->lane().map_region(request, terms_of(*connection_));
  if (!again) return again.error();
  again->part.descriptors.clear();  // before the broker is told that nothing is kept
  release(*connection_, again->part.imported.import);
  return {};
}

Result<ImportState::OrReserved> ImportState::open_or_reserve(std::shared_ptr<Connection> connection,
                                                             const std::string& name,
                                                             const ReserveOptions& options) {
  if (auto ready = check_ready(*connection, name, options.stop); !ready) return ready.error();
  auto outcome = connection->lane().map_or_reserve(
      {lane::RegionName::of(name), nanoseconds_of(options.life), nanoseconds_of(options.wait)},
      terms_of(*connection, options.wait, options.stop));
  if (!outcome) return outcome.error();
  if (const auto* reserved = std::get_if<lane::NameReserved>(&*outcome)) return OrReserved(*reserved);
  auto found = std::get<RegionPart>(std::move(*outcome));
  if (options.writable) {
    auto again = connection->lane().map_region(
        {{}, lane::RegionName::of(name), found.version, lane::MapAs::kWriter, 0}, terms_of(*connection));
    found.part.descriptors.clear();  // before the broker is told that nothing is kept
    release(*connection, found.part.imported.import);
    if (!again) return again.error();
    found = std::move(*again);
  }
  auto opened = open(std::move(connection), std::move(found),
                     {access_of(options.writable), {}, {{}, lane::RegionName::of(name)}});
  if (!opened) return opened.error();
  return OrReserved(std::move(*opened));
}

Result<std::unique_ptr<ImportState>> ImportState::open(std::shared_ptr<Connection> connection,
                                                       RegionPart part, Manner manner) {
  auto state = open(std::move(connection), std::move(part.part), std::move(manner));
  if (!state) return state;
  (*state)->version_ = part.version;
  (*state)->layout_ = part.layout;
  (*state)->digest_ = part.digest;
  return state;
}

Result<std::unique_ptr<ImportState>> ImportState::open(std::shared_ptr<Connection> connection,
                                                       ImportedPart part, Manner manner) {
  std::unique_ptr<ImportState> state(
      new ImportState(std::move(connection), part.imported.import, std::move(manner)));
  auto mapped = on_large_stack([&]() -> Result<Mapping> {
    if (auto reserved = state->reserve(part); !reserved) return reserved.error();
    return state->map(part);
  });
  part.descriptors.clear();  // before the broker is told that nothing is kept
  if (!mapped) return mapped.error();
  const MutexLock lock(state->mutex_);
  state->mapping_ = std::move(*mapped);
  return state;
}

Result<void> ImportState::reserve(const ImportedPart& part) {
  const std::vector<std::string>& devices = connection_->welcome().devices;
  if (part.imported.device >= devices.size()) return protocol_error("an import of no device");
  auto device = connection_->find_memory(devices[part.imported.device]);
  if (!device) return device.error().in("the memory cannot be mapped here");
  if (auto reached = check_peers(*device, peers_); !reached) return reached;
  const auto size = size_of(part.imported);
  if (!size) return size.error();
  const Bytes alignment = device->has_files() ? kHostAlignment : device->device->granularity;
  auto addresses = Addresses::reserve(*device, *size, alignment);
  if (!addresses) return addresses.error().in("no addresses for " + to_string(*size));
  device_ = std::move(*device);
  offset_ = {part.imported.offset};
  bytes_ = {part.imported.bytes};
  addresses_ = std::move(*addresses);
  return {};
}

// At the addresses that are reserved.
Result<Mapping> ImportState::map(const ImportedPart& part) const {
  if (auto complete = check_descriptors(part); !complete) return complete.error();
  auto mapping = device_.has_files() ? map_host(part) : map_on_device(part);
  if (mapping) crash_at(CrashPoint::kClientImportMapped);
  return mapping;
}

Result<Mapping> ImportState::map_host(const ImportedPart& part) const {
  std::vector<HostMapping::Extent> extents;
  for (std::size_t i = 0; i < part.descriptors.size(); ++i)
    extents.push_back({part.descriptors[i].get(), {part.imported.sizes[i]}});
  HostMapping::Manner manner{.access = access_};
  if (is_pinned_) {
    const auto driver = connection_->open_driver();
    if (!driver) return driver.error().in("pinned host memory needs the driver");
    manner.pinned = *driver;
  }
  auto mapped = HostMapping::create(addresses_.base(), extents, manner);
  return mapped ? Result<Mapping>(Mapping(std::move(*mapped))) : mapped.error();
}

Result<Mapping> ImportState::map_on_device(const ImportedPart& part) const {
  const auto allocations = import_extents(*device_.driver, part);
  if (!allocations) return allocations.error();
  if (fails_at(CrashPoint::kClientImportMap)) return errno_error(ENOMEM, "cuMemMap");
  auto mapping = cuda::Mapping::create(*device_.driver, addresses_.base(), *allocations,
                                       device_.device->ordinal, access_);
  if (!mapping) return mapping.error();
  for (const SharedDevice& peer : peers_) {
    if (peer.uuid == device_.uuid) continue;
    auto allowed =
        cuda::set_access(*device_.driver, mapping->at(), mapping->size(), peer.device->ordinal, access_);
    if (!allowed)
      return allowed.error().in("device " + peer.uuid + " has no access to the memory of device " +
                                device_.uuid);
  }
  return Mapping(std::move(*mapping));
}

Result<void> ImportState::allow(int ordinal) {
  const MutexLock lock(mutex_);
  if (id_ == 0) return not_mapped();
  if (device_.is_host()) return {};  // pinned memory is of all devices
  auto allowed = cuda::set_access(*device_.driver, mapping_.at(), mapping_.size(), ordinal, access_);
  if (allowed && std::ranges::find(allowed_, ordinal) == allowed_.end()) allowed_.push_back(ordinal);
  return allowed;
}

Result<void> ImportState::unmap() {
  if (auto right = check_region(); !right) return right;
  const MutexLock lock(mutex_);
  if (id_ == 0) return not_mapped();
  if (auto unmapped = mapping_.truncate(mapping_.at()); !unmapped) return unmapped;
  mapping_ = Mapping();
  crash_at(CrashPoint::kClientImportUnmapped);
  release(*connection_, id_.exchange(0));
  return {};
}

Result<void> ImportState::remap(const RemapOptions& options) {
  if (auto right = check_region(); !right) return right;
  const MutexLock lock(mutex_);
  if (id_ != 0) return Error{Code::kFailedPrecondition, "the region is mapped: unmap it first"};
  const lane::MapAs as = mapper(access_ == cuda::Access::kReadWrite);
  lane::MapRegion asked{named_.owner, named_.name, version_, as, 0};
  if (options.newest) {  // only regions of this device fit
    asked.version = 0;
    asked.device = device_.index;
  }
  auto again = connection_->lane().map_region(asked, terms_of(*connection_));
  if (!again) return again.error();
  auto mapped = [&]() -> Result<Mapping> {
    if (auto right = check_place(*again); !right) return right.error();
    return map(again->part);
  }();
  again->part.descriptors.clear();
  for (std::size_t i = 0; mapped && i < allowed_.size(); ++i) {
    auto allowed = cuda::set_access(*device_.driver, mapped->at(), mapped->size(), allowed_[i], access_);
    if (!allowed) mapped = allowed.error();
  }
  if (!mapped) {
    release(*connection_, again->part.imported.import);
    return mapped.error();
  }
  mapping_ = std::move(*mapped);
  id_ = again->part.imported.import;
  version_ = again->version;
  return {};
}

// Addresses that the program holds must still point to the same arrays.
Result<void> ImportState::check_place(const RegionPart& again) const {
  const lane::Imported& part = again.part.imported;
  const std::vector<std::string>& devices = connection_->welcome().devices;
  const auto size = size_of(part);
  if (!size) return size.error();
  const bool is_told = layout_.is_zero() || digest_ != lane::LayoutDigest{} || again.version == version_;
  if (is_told && again.layout == layout_ && again.digest == digest_ && part.bytes == bytes_.count &&
      part.offset == offset_.count && *size == addresses_.size() && part.device < devices.size() &&
      devices[part.device] == device_.uuid)
    return {};
  return Error{Code::kFailedPrecondition, "version " + std::to_string(again.version) + " of region '" +
                                              std::string(named_.name.view()) +
                                              "' has another layout or size, or does not tell the layout's "
                                              "digest: it does not fit in the place of version " +
                                              std::to_string(version_) + ": map it anew"};
}

Result<void> ImportState::check_region() const {
  if (auto usable = connection_->usable(); !usable) return usable;
  if (version_ != 0) return {};
  return Error{Code::kFailedPrecondition, "the import is of no region: only regions have names"};
}

ImportState::~ImportState() {
  const MutexLock lock(mutex_);
  // What the driver keeps mapped is not let go of. The end of the process does that.
  if (!mapping_.size().is_zero() && !mapping_.truncate(mapping_.at())) return;
  crash_at(CrashPoint::kClientImportUnmapped);
  if (id_ != 0) release(*connection_, id_);
  addresses_ = Addresses();
  crash_at(CrashPoint::kClientReleased);
}

// Nobody waits for the answer: the broker reads later requests of the session after this one. If it ends
// before it has read this one, the next broker is told what the session still holds.
void ImportState::release(Connection& connection, std::uint64_t import) {
  connection.lane().tell_later(lane::ReleaseImport{import});
}

}  // namespace gpumem::client
