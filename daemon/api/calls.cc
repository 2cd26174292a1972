#include "daemon/api/calls.h"

#include <algorithm>
#include <span>

#include "base/printable.h"
#include "base/random.h"
#include "shm/pages.h"

namespace gpumem::api {
namespace {

constexpr core::Duration kLongestWait = std::chrono::hours(7 * 24);
constexpr core::Duration kLongestLife = std::chrono::hours(10 * 365 * 24);

// The answer names the device, and has to stay short enough to be sent.
Result<void> check_device_name(std::string_view device) {
  if (device.size() <= kLabelBytes) return {};
  return Error{Code::kInvalidArgument, "the device's name is too long to be a UUID"};
}

Result<void> check_parts(const std::vector<core::Broker::Part>& parts) {
  if (parts.empty()) return Error{Code::kInvalidArgument, "a growth needs at least one part"};
  if (parts.size() <= kMaxDevices) return {};
  return Error{Code::kInvalidArgument, "a growth has one part for each device, " +
                                           std::to_string(kMaxDevices) + " at most, not " +
                                           std::to_string(parts.size())};
}

// Also where one is looked for: the answer shows the name.
Result<void> check_region_name(std::string_view name) {
  if (!name.empty() && check_label(name)) return {};
  return Error{Code::kInvalidArgument,
               "a region's name has 1 to " + std::to_string(kLabelBytes) + " printable bytes"};
}

// The first bytes of a handle, by which the broker recognises it. The rest is random.
constexpr std::string_view kHandleMark = "GPUMEMH1";

bool is_marked(const core::HandleBytes& handle) {
  return std::string_view(handle.data(), handle.size()).starts_with(kHandleMark);
}

core::HandleBytes new_handle() {
  core::HandleBytes bytes{};
  std::ranges::copy(kHandleMark, bytes.begin());
  fill_random(std::span(bytes).subspan(kHandleMark.size()));
  return bytes;
}

Result<core::MapTerms> terms_of(const MapRegion& request) {
  if (auto named = check_region_name(request.name); !named) return named.error();
  if (auto owner = check_label(request.owner); !owner) return owner.error();
  if (request.as > static_cast<std::uint64_t>(core::MapAs::kWriter))
    return Error{Code::kInvalidArgument, "a region is mapped as a reader, as its owner or as a writer"};
  if (auto device = check_device_name(request.device); !device) return device.error();
  if (request.version != 0 && request.newer_than != 0)
    return Error{Code::kInvalidArgument, "a request is for one version, or for one newer than another"};
  return core::MapTerms{.owner = request.owner,
                        .name = request.name,
                        .version = request.version,
                        .how = static_cast<core::MapAs>(request.as),
                        .device = request.device,
                        .newer_than = request.newer_than};
}

Result<core::RegionTerms> region_terms(const Publish& request, core::TimePoint now) {
  if (auto named = check_region_name(request.name); !named) return named.error();
  for (const std::string& reader : request.readers)
    if (auto name = check_label(reader); !name) return name.error();
  if (request.sharing > static_cast<std::uint64_t>(core::Sharing::kNamed))
    return Error{Code::kInvalidArgument, "the broker knows no such kind of sharing"};
  if (request.keep > 1) return Error{Code::kInvalidArgument, "a region is kept (1) or not (0)"};
  if (request.sealed > 1) return Error{Code::kInvalidArgument, "a region is sealed (1) or not (0)"};
  core::RegionTerms terms;
  terms.name = request.name;
  terms.sharing = static_cast<core::Sharing>(request.sharing);
  terms.readers = request.readers;
  terms.request = request.number;
  if (request.life != core::Duration::zero()) terms.expires = now + std::min(request.life, kLongestLife);
  terms.keep = request.keep == 1;
  if (request.linger != core::Duration::zero()) terms.linger = std::min(request.linger, kLongestLife);
  terms.offset = request.offset;
  terms.bytes = request.bytes;
  terms.layout = request.layout;
  terms.digest = request.digest;
  terms.sealed = request.sealed == 1;
  return terms;
}

Result<core::DeviceIndex> device_of(const core::Broker& broker, const std::string& uuid) {
  if (auto named = check_device_name(uuid); !named) return named.error();
  const auto& devices = broker.policy().devices;
  const auto device = std::ranges::find(devices, uuid, &core::DevicePolicy::uuid);
  if (device == devices.end())
    return Error{Code::kNotFound, "there is no device " + uuid + "; see `gpumem status`"};
  return static_cast<core::DeviceIndex>(device - devices.begin());
}

// Takes a region back that has been published and could not be written down. All outlive it.
auto removal_of(core::Broker& broker, SessionId session, const std::string& name, core::TimePoint now) {
  return [&broker, session, &name, now](core::RegionId version) {
    static_cast<void>(broker.remove_region(session, name, version.value, now));
  };
}

Error no_such_session() { return {Code::kNotFound, "the session has ended"}; }

// What was decided is told once the next broker would know of it; else `undo` takes it back.
template <class T, class Undo>
Result<T> written_or_undone(core::Executor& executor, Result<T> decided, Undo undo) {
  if (!decided) return decided;
  if (auto written = executor.write_down(); !written) {
    undo(*decided);
    return written.error();
  }
  return decided;
}

}  // namespace

Result<SessionId> open_session(core::Executor& executor, std::optional<int> connection,
                               const OpenSession& request, std::shared_ptr<core::SessionHolder> holder) {
  if (auto label = check_label(request.label); !label) return label.error();
  if (!connection) return Error{Code::kUnauthenticated, "nobody is known at the other end of this call"};
  return executor.open_session(*connection, request.label, std::move(holder));
}

Result<SliceOpened> open_slice(core::Executor& executor, core::Broker& broker, SessionId session,
                               const OpenSlice& request, core::TimePoint now) {
  if (auto label = check_label(request.label); !label) return label.error();
  if (auto named = check_device_name(request.device); !named) return named.error();
  const auto slice = written_or_undone(
      executor, broker.open_slice(session, request.device, request.limit, request.label),
      [&](const auto& opened) { static_cast<void>(broker.close_slice(session, opened.id, now)); });
  if (!slice) return slice.error();
  return SliceOpened{slice->id, slice->limit, broker.policy().devices[slice->device].granularity};
}

Result<void> close_slice(core::Broker& broker, SessionId session, const CloseSlice& request,
                         core::TimePoint now) {
  return broker.close_slice(session, request.slice, now);
}

RequestId grow(core::Executor& executor, SessionId session, const Grow& request,
               core::Executor::GrowAnswer answer) {
  if (auto right = check_parts(request.parts); !right) {
    answer(core::GrowFailure{right.error(), {}});
    return {};
  }
  return executor.grow(session, request.parts, std::min(request.wait, kLongestWait), std::move(answer));
}

Result<void> give_back(core::Broker& broker, SessionId session, const Return& request, core::TimePoint now) {
  return broker.give_back(session, request.slice, request.leases, now);
}

Result<HandleExported> export_handle(core::Broker& broker, SessionId session, const ExportHandle& request,
                                     core::TimePoint now) {
  const core::Duration life = request.life == core::Duration::zero() ? kHandleLife : request.life;
  const HandleExported exported{new_handle(), now + std::min(life, kLongestWait)};
  const core::HandleTerms terms{request.offset, request.bytes, exported.expires,
                                std::max<std::uint64_t>(request.uses, 1)};
  auto made = broker.export_handle(session, request.slice, request.leases, terms, exported.handle, now);
  if (!made) return made.error();
  return exported;
}

Result<std::vector<core::FabricPart>> export_fabric(core::Executor& executor, core::Broker& broker,
                                                    SessionId session, const ExportHandle& request,
                                                    core::TimePoint now) {
  if (request.life != core::Duration::zero() || request.uses != 0) {
    return Error{Code::kInvalidArgument,
                 "a fabric handle cannot be taken back: leave out how long and how often it is good"};
  }
  const auto handle_of = [&](ExtentId extent) { return executor.fabric_handle(extent); };
  return broker.export_fabric(session, request.slice, request.leases, request.offset, request.bytes,
                              handle_of, now);
}

Result<core::Imported> import_handle(core::Executor& executor, core::Broker& broker, SessionId session,
                                     const ImportHandle& request, core::TimePoint now) {
  if (!is_marked(request.handle)) {
    return Error{Code::kInvalidArgument,
                 "these 64 bytes are no handle of gpumem's (CUDA's own are opened by cuIpcOpenMemHandle)"};
  }
  return written_or_undone(
      executor, broker.import_handle(session, request.handle, now),
      [&](const auto& imported) { static_cast<void>(broker.release_import(session, imported.id, now)); });
}

Error cannot_import() {
  return {Code::kFailedPrecondition,
          "gRPC carries no descriptors, so memory cannot be mapped by it: redeem the handle with "
          "gpumem_import_handle, or on a lane"};
}

Result<void> revoke_handle(core::Broker& broker, SessionId session, const RevokeHandle& request) {
  return broker.revoke_handle(session, request.handle);
}

Result<void> release_import(core::Broker& broker, SessionId session, const ReleaseImport& request,
                            core::TimePoint now) {
  return broker.release_import(session, request.import, now);
}

Result<core::RegionId> publish(core::Executor& executor, core::Broker& broker, SessionId session,
                               const Publish& request, core::TimePoint now) {
  auto terms = region_terms(request, now);
  if (!terms) return terms.error();
  return written_or_undone(executor,
                           broker.publish(session, request.slice, request.leases, std::move(*terms), now),
                           removal_of(broker, session, request.name, now));
}

Result<core::MappedRegion> map_region(core::Executor& executor, core::Broker& broker, SessionId session,
                                      const MapRegion& request, core::TimePoint now) {
  const auto terms = terms_of(request);
  if (!terms) return terms.error();
  return written_or_undone(executor, broker.map_region(session, *terms, now),
                           [&](const auto& mapped) { broker.take_back(session, mapped, now); });
}

RequestId await_region(core::Executor& executor, SessionId session, const MapRegion& request,
                       core::Executor::MapAnswer answer) {
  auto terms = terms_of(request);
  if (!terms) {
    answer(terms.error());
    return {};
  }
  return executor.map_region(session, std::move(*terms), std::min(request.wait, kLongestWait),
                             std::move(answer));
}

RequestId map_or_reserve(core::Executor& executor, SessionId session, const MapOrReserve& request,
                         core::Executor::MapAnswer answer) {
  if (auto named = check_region_name(request.name); !named) {
    answer(named.error());
    return {};
  }
  const core::Duration life = request.life == core::Duration::zero() ? kReservationLife : request.life;
  return executor.map_region(session,
                             {.owner = {},
                              .name = request.name,
                              .reserve_for = std::min(life, kLongestWait),
                              .number = request.number},
                             std::min(request.wait, kLongestWait), std::move(answer));
}

Result<void> release_reservation(core::Broker& broker, SessionId session, const ReleaseReservation& request,
                                 core::TimePoint now) {
  return broker.release_reservation(session, request.reservation, now);
}

Result<void> remove_region(core::Broker& broker, SessionId session, const RemoveRegion& request,
                           core::TimePoint now) {
  if (auto named = check_region_name(request.name); !named) return named;
  return broker.remove_region(session, request.name, request.version, now, request.number);
}

Result<void> remove_region_of(core::Broker& broker, const std::string& owner, const RemoveRegion& request,
                              core::TimePoint now) {
  if (auto named = check_region_name(request.name); !named) return named;
  if (auto tenant = check_label(owner); !tenant) return tenant;
  return broker.remove_region_of(owner, request.name, request.version, now);
}

Result<void> charge(core::Broker& broker, SessionId session, const Charge& request, core::TimePoint now) {
  if (auto named = check_device_name(request.device); !named) return named;
  return broker.charge(session, request.device, request.bytes, now);
}

Result<void> spent(core::Broker& broker, SessionId session, const Spent& request, core::TimePoint now) {
  const auto device = device_of(broker, request.device);
  if (!device) return device.error();
  broker.spent(session, *device, now);
  return {};
}

Result<core::SessionView> describe(const core::Broker& broker, SessionId session) {
  if (!broker.knows(session)) return no_such_session();
  return broker.sessions(SessionId{session.value - 1}, 0).front();
}

Result<core::Explanation> explain(const core::Broker& broker, SessionId session, ExplanationLimit& limit,
                                  core::TimePoint now) {
  const auto tenant = broker.tenant_of(session);
  if (!tenant) return no_such_session();
  const core::Peer peer = broker.sessions(SessionId{session.value - 1}, 0).front().peer;
  if (auto within = limit.add(peer.account(), now); !within) return within.error();
  auto explanation = broker.explain_session(session, false, now);
  if (!explanation) return explanation;
  // Others' requests are part of how a common parent stands; what they ask for is not for everybody.
  std::erase_if(explanation->waiting, [&](const core::Denial& one) {
    return one.tenant != *tenant && !broker.belongs(one.tenant, *tenant);
  });
  return explanation;
}

}  // namespace gpumem::api
