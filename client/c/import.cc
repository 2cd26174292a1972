#include <algorithm>

#include "client/c/handles.h"
#include "client/c/last_error.h"
#include "client/c/process_default.h"
#include "client/c/structs.h"

// Memory that sessions share: handles of it, and imports.

namespace gpumem::c_abi {
namespace {

Result<ExportOptions> read_export_options(const gpumem_export_options* given) {
  const auto known = read_struct(given, "gpumem_export_options");
  if (!known) return known.error();
  const auto life = read_duration(known->life_ms, "life_ms");
  if (!life) return life.error();
  return ExportOptions{*life, std::max<std::uint64_t>(known->uses, 1)};
}

/// Stores the handle that `make` creates with the converted options.
template <class Make>
gpumem_status store_handle(const gpumem_export_options* given, gpumem_ipc_handle* handle, Make make) {
  if (auto where = not_null(handle, "where to store the handle"); !where) return fail(where.error());
  const auto options = read_export_options(given);
  if (!options) return fail(options.error());
  const Result<lane::HandleBytes> made = make(*options);
  if (!made) return fail(made.error());
  std::copy(made->begin(), made->end(), handle->bytes);
  return GPUMEM_OK;
}

Result<lane::HandleBytes> export_range(gpumem_slice& handle, Bytes offset, Bytes bytes,
                                       const ExportOptions& options) {
  const auto slice = handle.slice.use();
  if (!slice) return slice.error();
  return (*slice)->export_handle(offset, bytes, options);
}

Result<gpumem_import*> import_handle(gpumem_session& handle, const gpumem_ipc_handle& given) {
  const auto session = handle.session.use();
  if (!session) return session.error();
  lane::HandleBytes bytes{};
  std::copy(std::begin(given.bytes), std::end(given.bytes), bytes.begin());
  auto import = Import::open((*session)->connection(), bytes);
  if (!import) return import.error();
  return new gpumem_import(std::move(*import));
}

}  // namespace
}  // namespace gpumem::c_abi

using gpumem::c_abi::fail;
using gpumem::c_abi::guarded;
using gpumem::c_abi::not_null;
using gpumem::c_abi::store_handle;

extern "C" {

gpumem_status gpumem_slice_export(gpumem_slice* slice, uint64_t offset, uint64_t bytes,
                                  const gpumem_export_options* options, gpumem_ipc_handle* handle) noexcept {
  return guarded([&] {
    if (auto given = not_null(slice, "slice"); !given) return fail(given.error());
    return store_handle(options, handle, [&](const gpumem::ExportOptions& read) {
      return gpumem::c_abi::export_range(*slice, {offset}, {bytes}, read);
    });
  });
}

gpumem_status gpumem_allocator_export(gpumem_allocator* allocator, gpumem_address address, uint64_t offset,
                                      uint64_t bytes, const gpumem_export_options* options,
                                      gpumem_ipc_handle* handle) noexcept {
  return guarded([&] {
    if (auto given = not_null(allocator, "allocator"); !given) return fail(given.error());
    return store_handle(options, handle, [&](const gpumem::ExportOptions& read) {
      return gpumem::c_abi::engine_of(*allocator, address).export_handle(address, {offset}, {bytes}, read);
    });
  });
}

gpumem_status gpumem_import_handle(gpumem_session* session, const gpumem_ipc_handle* handle,
                                   gpumem_import** import) noexcept {
  return guarded([&] {
    if (auto given = not_null(session, "session"); !given) return fail(given.error());
    if (auto given = not_null(handle, "handle"); !given) return fail(given.error());
    if (auto given = not_null(import, "where to store the import"); !given) return fail(given.error());
    const auto opened = gpumem::c_abi::import_handle(*session, *handle);
    if (!opened) return fail(opened.error());
    *import = *opened;
    return GPUMEM_OK;
  });
}

gpumem_address gpumem_import_address(const gpumem_import* import) noexcept {
  if (import != nullptr) return import->address;
  return fail(gpumem::Code::kInvalidArgument, "import is NULL"), 0;
}

uint64_t gpumem_import_bytes(const gpumem_import* import) noexcept {
  if (import != nullptr) return import->bytes.count;
  return fail(gpumem::Code::kInvalidArgument, "import is NULL"), 0;
}

const char* gpumem_import_device(const gpumem_import* import) noexcept {
  if (import != nullptr) return import->device.c_str();
  return fail(gpumem::Code::kInvalidArgument, "import is NULL"), nullptr;
}

int gpumem_import_ordinal(const gpumem_import* import) noexcept {
  if (import != nullptr) return import->ordinal;
  return fail(gpumem::Code::kInvalidArgument, "import is NULL"), -1;
}

gpumem_status gpumem_import_close(gpumem_import* import) noexcept {
  return guarded([&] {
    if (auto given = not_null(import, "import"); !given) return fail(given.error());
    const auto taken = import->import.take();
    if (!taken) return fail(taken.error());
    return GPUMEM_OK;
  });
}

void gpumem_import_free(gpumem_import* import) noexcept {
  if (import != nullptr && import->is_of_this_process()) gpumem::c_abi::free_handle(import);
}

}  // extern "C"
