#include <algorithm>
#include <cstring>

#include "client/c/handles.h"
#include "client/c/last_error.h"
#include "client/c/structs.h"
#include "client/session/exported_range.h"

// Regions: published, mapped, removed.

namespace gpumem::c_abi {
namespace {

Result<PublishOptions> read_publish_options(const gpumem_publish_options* given) {
  const auto known = read_struct(given, "gpumem_publish_options");
  if (!known) return known.error();
  const auto life = read_duration(known->life_ms, "life_ms");
  if (!life) return life.error();
  const auto linger = read_duration(known->linger_ms, "linger_ms");
  if (!linger) return linger.error();
  int sharing = 0;  // a program in C may have put any number there
  static_assert(sizeof sharing == sizeof known->sharing);
  std::memcpy(&sharing, &known->sharing, sizeof sharing);
  if (sharing < GPUMEM_SHARING_PRIVATE || sharing > GPUMEM_SHARING_NAMED)
    return Error{Code::kInvalidArgument, "no such kind of sharing"};
  PublishOptions options{.sharing = static_cast<Sharing>(sharing),
                         .readers = {},
                         .layout = {known->layout},
                         .digest = {},
                         .life = *life,
                         .keep = known->keep,
                         .linger = *linger,
                         .sealed = known->sealed};
  std::ranges::copy(known->digest, options.digest.begin());
  if (known->reader_count != 0) {
    if (auto named = not_null(known->readers, "readers"); !named) return named.error();
  }
  for (std::size_t i = 0; i < known->reader_count; ++i) options.readers.push_back(text(known->readers[i]));
  return options;
}

Result<std::uint64_t> publish(gpumem_slice& handle, const char* name, Bytes offset, Bytes bytes,
                              const gpumem_publish_options* given) {
  const auto options = read_publish_options(given);
  if (!options) return options.error();
  const auto slice = handle.slice.use();
  if (!slice) return slice.error();
  return (*slice)->publish(text(name), offset, bytes, *options);
}

Result<gpumem_import*> map_region(gpumem_session& handle, const char* name,
                                  const gpumem_region_options* given) {
  const auto known = read_struct(given, "gpumem_region_options");
  if (!known) return known.error();
  const auto wait = read_duration(known->wait_ms, "wait_ms");
  if (!wait) return wait.error();
  Stopping stopping;
  if (known->canceller != nullptr) stopping.add(known->canceller->source.get_token());
  const auto session = handle.session.use();
  if (!session) return session.error();
  if (known->access_count != 0) {
    if (auto named = not_null(known->access, "access"); !named) return named.error();
  }
  RegionOptions options{.owner = text(known->owner),
                        .version = known->version,
                        .writable = known->writable,
                        .adopt = known->adopt,
                        .device = text(known->device),
                        .access = {},
                        .newer_than = known->newer_than,
                        .pinned = known->pinned,
                        .wait = *wait,
                        .stop = stopping.token()};
  for (std::size_t i = 0; i < known->access_count; ++i) options.access.push_back(text(known->access[i]));
  auto import = Import::open((*session)->connection(), text(name), options);
  if (!import) return import.error();
  return new gpumem_import(std::move(*import));
}

struct MapOrReserved {
  gpumem_import* import = nullptr;
  std::uint64_t reservation = 0;
};

Result<MapOrReserved> map_or_reserve(gpumem_session& handle, const char* name,
                                     const gpumem_reserve_options* given) {
  const auto known = read_struct(given, "gpumem_reserve_options");
  if (!known) return known.error();
  const auto wait = read_duration(known->wait_ms, "wait_ms");
  if (!wait) return wait.error();
  const auto life = read_duration(known->life_ms, "life_ms");
  if (!life) return life.error();
  Stopping stopping;
  if (known->canceller != nullptr) stopping.add(known->canceller->source.get_token());
  const auto session = handle.session.use();
  if (!session) return session.error();
  auto outcome = Import::open_or_reserve(
      (*session)->connection(), text(name),
      {.writable = known->writable, .wait = *wait, .life = *life, .stop = stopping.token()});
  if (!outcome) return outcome.error();
  if (const auto* reserved = std::get_if<lane::NameReserved>(&*outcome))
    return MapOrReserved{.import = nullptr, .reservation = reserved->reservation};
  return MapOrReserved{.import = new gpumem_import(std::get<std::unique_ptr<Import>>(std::move(*outcome))),
                       .reservation = 0};
}

Result<void> remap(gpumem_import& handle, Import& import, const gpumem_remap_options* given) {
  const auto known = read_struct(given, "gpumem_remap_options");
  if (!known) return known.error();
  auto mapped = import.remap({.newest = known->newest});
  if (mapped) handle.version = import.region().version;
  return mapped;
}

Result<lane::Done> remove_region(Session& session, const std::string& name, std::uint64_t version) {
  if (auto right = client::check_name(name); !right) return right.error();
  return session.connection()->lane().call(lane::RemoveRegion{lane::RegionName::of(name), version});
}

}  // namespace
}  // namespace gpumem::c_abi

using gpumem::c_abi::fail;
using gpumem::c_abi::guarded;
using gpumem::c_abi::not_null;
using gpumem::c_abi::with_import;
using gpumem::c_abi::with_session;

extern "C" {

gpumem_status gpumem_slice_publish(gpumem_slice* slice, const char* name, uint64_t offset, uint64_t bytes,
                                   const gpumem_publish_options* options, uint64_t* version) noexcept {
  return guarded([&] {
    if (auto given = not_null(slice, "slice"); !given) return fail(given.error());
    if (auto given = not_null(version, "where to store the version"); !given) return fail(given.error());
    const auto published = gpumem::c_abi::publish(*slice, name, {offset}, {bytes}, options);
    if (!published) return fail(published.error());
    *version = *published;
    return GPUMEM_OK;
  });
}

gpumem_status gpumem_map_region(gpumem_session* session, const char* name,
                                const gpumem_region_options* options, gpumem_import** import) noexcept {
  return guarded([&] {
    if (auto given = not_null(session, "session"); !given) return fail(given.error());
    if (auto given = not_null(import, "where to store the import"); !given) return fail(given.error());
    const auto mapped = gpumem::c_abi::map_region(*session, name, options);
    if (!mapped) return fail(mapped.error());
    *import = *mapped;
    return GPUMEM_OK;
  });
}

gpumem_status gpumem_import_unmap(gpumem_import* import) noexcept {
  return with_import(import, [](gpumem::c_abi::Import& open) { return open.unmap(); });
}

gpumem_status gpumem_import_remap(gpumem_import* import, const gpumem_remap_options* options) noexcept {
  return with_import(
      import, [&](gpumem::c_abi::Import& open) { return gpumem::c_abi::remap(*import, open, options); });
}

bool gpumem_import_is_mapped(gpumem_import* import) noexcept {
  if (import == nullptr) return false;
  const auto open = import->import.use();
  return open && (*open)->is_mapped();
}

bool gpumem_import_is_pinned(gpumem_import* import) noexcept {
  if (import == nullptr) return false;
  const auto open = import->import.use();
  return open && (*open)->is_pinned();
}

gpumem_status gpumem_map_or_reserve(gpumem_session* session, const char* name,
                                    const gpumem_reserve_options* options, gpumem_import** import,
                                    uint64_t* reservation) noexcept {
  return guarded([&] {
    if (auto given = not_null(session, "session"); !given) return fail(given.error());
    if (auto given = not_null(import, "where to store the import"); !given) return fail(given.error());
    if (auto given = not_null(reservation, "where to store the reservation"); !given)
      return fail(given.error());
    const auto outcome = gpumem::c_abi::map_or_reserve(*session, name, options);
    if (!outcome) return fail(outcome.error());
    *import = outcome->import;
    *reservation = outcome->reservation;
    return GPUMEM_OK;
  });
}

gpumem_status gpumem_release_reservation(gpumem_session* session, uint64_t reservation) noexcept {
  return with_session(session, [&](const gpumem::c_abi::Session& open) {
    return open.connection()->lane().call(gpumem::lane::ReleaseReservation{reservation});
  });
}

gpumem_status gpumem_import_region(const gpumem_import* import, gpumem_region_info* info) noexcept {
  return guarded([&] {
    if (auto given = not_null(import, "import"); !given) return fail(given.error());
    gpumem_region_info known = GPUMEM_REGION_INFO_INIT;
    known.version = import->version;
    known.layout = import->layout.count;
    std::ranges::copy(import->digest, known.digest);
    const auto written = gpumem::c_abi::write_struct(known, info, "gpumem_region_info");
    return written ? GPUMEM_OK : fail(written.error());
  });
}

gpumem_status gpumem_remove_region(gpumem_session* session, const char* name, uint64_t version) noexcept {
  return with_session(session, [&](gpumem::c_abi::Session& open) {
    return gpumem::c_abi::remove_region(open, gpumem::c_abi::text(name), version);
  });
}

}  // extern "C"
