#include "client/c/handles.h"
#include "client/c/last_error.h"
#include "client/c/stopping.h"
#include "client/c/structs.h"

// Regions whose content changes: committed, and waited for.

namespace gpumem::c_abi {
namespace {

Result<std::uint64_t> commit(gpumem_import& handle) {
  const auto import = handle.import.use();
  if (!import) return import.error();
  return (*import)->commit();
}

Result<std::uint64_t> commit(gpumem_slice& handle, std::uint64_t version) {
  const auto slice = handle.slice.use();
  if (!slice) return slice.error();
  const auto told = (*slice)->connection().lane().call<lane::RegionGeneration>(lane::CommitRegion{version});
  if (!told) return told.error();
  return told->generation;
}

/// What `ask` answers. It is called off when the handle is closed, too.
template <class Handle, class Ask>
Result<std::uint64_t> generation_of(const Handle& handle, const gpumem_generation_options* given, Ask ask) {
  const auto known = read_struct(given, "gpumem_generation_options");
  if (!known) return known.error();
  const auto wait = read_duration(known->wait_ms, "wait_ms");
  if (!wait) return wait.error();
  Stopping stopping;
  stopping.add(handle.closing.get_token());
  if (known->canceller != nullptr) stopping.add(known->canceller->source.get_token());
  return ask({.after = known->after, .wait = *wait, .stop = stopping.token()});
}

Result<std::uint64_t> generation_of(gpumem_import& handle, const gpumem_generation_options* given) {
  return generation_of(handle, given, [&](const GenerationOptions& options) -> Result<std::uint64_t> {
    const auto import = handle.import.use();
    if (!import) return import.error();
    return (*import)->generation(options);
  });
}

Result<std::uint64_t> generation_of(gpumem_slice& handle, std::uint64_t version,
                                    const gpumem_generation_options* given) {
  return generation_of(handle, given, [&](const GenerationOptions& options) -> Result<std::uint64_t> {
    const auto slice = handle.slice.use();
    if (!slice) return slice.error();
    return client::ImportState::generation_of((*slice)->connection(), version, options);
  });
}

/// Stores what `call` answers.
template <class Call>
gpumem_status stored(std::uint64_t* generation, Call call) noexcept {
  return guarded([&] {
    if (auto given = not_null(generation, "where to store the generation"); !given)
      return fail(given.error());
    const Result<std::uint64_t> answer = call();
    if (!answer) return fail(answer.error());
    *generation = *answer;
    return GPUMEM_OK;
  });
}

}  // namespace
}  // namespace gpumem::c_abi

using gpumem::c_abi::not_null;

extern "C" {

gpumem_status gpumem_import_commit(gpumem_import* import, uint64_t* generation) noexcept {
  return gpumem::c_abi::stored(generation, [&]() -> gpumem::Result<std::uint64_t> {
    if (auto given = not_null(import, "import"); !given) return given.error();
    return gpumem::c_abi::commit(*import);
  });
}

gpumem_status gpumem_slice_commit(gpumem_slice* slice, uint64_t version, uint64_t* generation) noexcept {
  return gpumem::c_abi::stored(generation, [&]() -> gpumem::Result<std::uint64_t> {
    if (auto given = not_null(slice, "slice"); !given) return given.error();
    return gpumem::c_abi::commit(*slice, version);
  });
}

gpumem_status gpumem_import_generation(gpumem_import* import, const gpumem_generation_options* options,
                                       uint64_t* generation) noexcept {
  return gpumem::c_abi::stored(generation, [&]() -> gpumem::Result<std::uint64_t> {
    if (auto given = not_null(import, "import"); !given) return given.error();
    return gpumem::c_abi::generation_of(*import, options);
  });
}

gpumem_status gpumem_slice_generation(gpumem_slice* slice, uint64_t version,
                                      const gpumem_generation_options* options,
                                      uint64_t* generation) noexcept {
  return gpumem::c_abi::stored(generation, [&]() -> gpumem::Result<std::uint64_t> {
    if (auto given = not_null(slice, "slice"); !given) return given.error();
    return gpumem::c_abi::generation_of(*slice, version, options);
  });
}

}  // extern "C"
