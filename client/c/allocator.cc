#include "client/c/handles.h"
#include "client/c/last_error.h"
#include "client/c/process_default.h"
#include "client/c/streams.h"
#include "client/c/structs.h"
#include "client/slice/broker_backing.h"

namespace gpumem::c_abi {
namespace {

/// Applies `call` to the engine.
template <class Call>
gpumem_status with_engine(gpumem_allocator* handle, Call call) noexcept {
  return guarded([&] {
    if (auto given = not_null(handle, "allocator"); !given) return fail(given.error());
    const auto done = call(handle->engine);
    return done ? GPUMEM_OK : fail(done.error());
  });
}

/// As above, and stores the result in `out`.
template <class Out, class Call>
gpumem_status with_engine(gpumem_allocator* handle, Out* out, const char* what, Call call) noexcept {
  return with_engine(handle, [&](allocator::Engine& engine) -> Result<void, GrowError> {
    if (auto given = not_null(out, what); !given) return GrowError(given.error());
    const auto done = call(engine);
    if (!done) return GrowError(done.error());
    *out = *done;
    return {};
  });
}

/// Applies `call` to the allocator's engine, and to those that it took the place of. Errors  the first.
template <class Call>
Result<void> for_each_engine(gpumem_allocator& handle, Call call) {
  Result<void> all;
  for (gpumem_allocator* one = &current_of(handle); one != nullptr; one = one->older) {
    if (auto done = call(one->engine); !done && all) all = std::move(done);
  }
  return all;
}

constexpr const char* kWhere = "where to store the address";

/// From the allocator, or from the one that takes its place. `taken`  of the broker's timeout, by then.
Result<std::uint64_t, GrowError> allocate_where_possible(gpumem_allocator& handle, Bytes bytes,
                                                         gpumem_stream stream, const Placement& placement,
                                                         std::chrono::nanoseconds taken = {}) {
  gpumem_allocator& current = current_of(handle);
  auto address = current.engine.allocate(bytes, stream, placement, {.wait = {}, .taken = taken});
  const auto code = address ? Code() : address.error().code;
  if (code == Code::kUnavailable || code == Code::kUnauthenticated) {
    if (const DefaultAllocator next = successor_of(current); next.handle != nullptr) {
      allocator::Engine& engine = next.handle->engine;
      address = engine.allocate(bytes, stream, placement, {.wait = {}, .taken = next.taken});
    }
  }
  return address;
}

Result<std::uint64_t, GrowError> allocate_placed(gpumem_allocator& handle, Bytes bytes, gpumem_stream stream,
                                                 const gpumem_placement* given) {
  const auto known = read_struct(given, "gpumem_placement");
  if (!known) return GrowError(known.error());
  return allocate_where_possible(handle, bytes, stream, {{known->tag}, {known->room}});
}

// The slower paths of the two hot calls. They are separate functions, so that the hot calls, which call
// nothing else, save no registers.

[[gnu::noinline]] gpumem_status allocate_slowly(gpumem_allocator* handle, std::uint64_t bytes,
                                                gpumem_stream stream, gpumem_address* address) noexcept {
  if (handle != nullptr && address != nullptr) {
    if (const auto at = handle->engine.try_allocate({bytes}, stream); at != 0) {
      *address = at;
      return GPUMEM_OK;
    }
  }
  return with_engine(handle, address, kWhere, [&](allocator::Engine&) {
    return allocate_where_possible(*handle, {bytes}, stream, {});
  });
}

[[gnu::noinline]] gpumem_status deallocate_slowly(gpumem_allocator* handle, gpumem_address address,
                                                  std::uint64_t bytes, gpumem_stream stream) noexcept {
  if (handle != nullptr && handle->engine.try_deallocate(address, {bytes}, stream)) return GPUMEM_OK;
  return with_engine(handle, [&](allocator::Engine&) {
    return engine_of(*handle, address).deallocate(address, {bytes}, stream);
  });
}

/// As gpumem_allocate, from what default_allocator() has given.
Result<std::uint64_t, GrowError> allocate(const DefaultAllocator& from, Bytes bytes, gpumem_stream stream) {
  if (const auto at = from.handle->engine.try_allocate(bytes, stream); at != 0) return at;
  const NotCancelled whole;
  return allocate_where_possible(*from.handle, bytes, stream, {}, from.taken);
}

Result<void> check_ended_by_program(const gpumem_allocator& handle) {
  if (handle.owner == Owner::kProgram) return {};
  return Error{Code::kFailedPrecondition,
               "the process's own allocator ends with the process; gpumem_allocator_trim gives memory back"};
}

Result<void> close(gpumem_allocator& handle) {
  if (auto may = check_ended_by_program(handle); !may) return may;
  return handle.engine.close();
}

Result<void> destroy(gpumem_allocator& handle) {
  if (auto may = check_ended_by_program(handle); !may) return may;
  return handle.engine.close(false);
}

}  // namespace

gpumem_status allocate_from_default(int device, std::uint64_t bytes, gpumem_stream stream,
                                    gpumem_address* address) noexcept {
  return caught([&] {
    const auto from = default_allocator(device);
    if (!from) return fail(from.error());
    const auto allocated = allocate(*from, {bytes}, stream);
    if (!allocated) return fail(allocated.error());
    *address = *allocated;
    return GPUMEM_OK;
  });
}

Result<gpumem_allocator*> open_allocator(gpumem_session& session, const AllocatorOptions& options,
                                         const Opening& opening) {
  const auto open = session.session.use();
  if (!open) return open.error();
  auto engine = client::open_engine((*open)->connection(), options, {}, opening.deadline);
  if (!engine) return engine.error();
  return new gpumem_allocator(std::move(*engine), opening.owner, &session, opening.older);
}

}  // namespace gpumem::c_abi

using gpumem::allocator::Engine;
using gpumem::c_abi::fail;
using gpumem::c_abi::guarded;
using gpumem::c_abi::not_null;
using gpumem::c_abi::with_engine;

extern "C" {

gpumem_status gpumem_allocator_open(gpumem_session* session, const gpumem_allocator_options* options,
                                    gpumem_allocator** allocator) noexcept {
  return guarded([&] {
    if (auto given = not_null(session, "session"); !given) return fail(given.error());
    if (auto given = not_null(allocator, "where to store the allocator"); !given) return fail(given.error());
    const auto read = gpumem::c_abi::read_options(options);
    if (!read) return fail(read.error());
    const auto opened = gpumem::c_abi::open_allocator(*session, *read);
    if (!opened) return fail(opened.error());
    *allocator = *opened;
    return GPUMEM_OK;
  });
}

[[gnu::flatten]] gpumem_status gpumem_allocate(gpumem_allocator* allocator, uint64_t bytes,
                                               gpumem_stream stream, gpumem_address* address) noexcept {
  if (allocator != nullptr && address != nullptr) [[likely]] {
    if (const auto at = allocator->engine.allocate_by_default({bytes}, stream); at != 0) [[likely]] {
      *address = at;
      return GPUMEM_OK;
    }
  }
  return gpumem::c_abi::allocate_slowly(allocator, bytes, stream, address);
}

gpumem_status gpumem_deallocate(gpumem_allocator* allocator, gpumem_address address, uint64_t bytes,
                                gpumem_stream stream) noexcept {
  if (allocator != nullptr && allocator->engine.deallocate_by_default(address, {bytes}, stream)) [[likely]] {
    return GPUMEM_OK;
  }
  return gpumem::c_abi::deallocate_slowly(allocator, address, bytes, stream);
}

gpumem_status gpumem_allocate_placed(gpumem_allocator* allocator, uint64_t bytes, gpumem_stream stream,
                                     const gpumem_placement* placement, gpumem_address* address) noexcept {
  return with_engine(allocator, address, gpumem::c_abi::kWhere, [&](Engine&) {
    return gpumem::c_abi::allocate_placed(*allocator, {bytes}, stream, placement);
  });
}

gpumem_status gpumem_extend(gpumem_allocator* allocator, gpumem_address address, uint64_t bytes, uint64_t to,
                            gpumem_stream stream) noexcept {
  return with_engine(allocator, [&](Engine&) {
    return gpumem::c_abi::engine_of(*allocator, address).extend(address, {bytes}, {to}, stream);
  });
}

gpumem_status gpumem_record_stream(gpumem_allocator* allocator, gpumem_address address,
                                   gpumem_stream stream) noexcept {
  return with_engine(allocator, [&](Engine&) {
    return gpumem::c_abi::engine_of(*allocator, address).record_stream(address, stream);
  });
}

gpumem_status gpumem_release_stream(gpumem_allocator* allocator, gpumem_stream stream) noexcept {
  return with_engine(allocator, [&](Engine&) {
    return gpumem::c_abi::for_each_engine(*allocator,
                                          [&](Engine& engine) { return engine.release_stream(stream); });
  });
}

gpumem_status gpumem_synchronize(gpumem_allocator* allocator, gpumem_stream stream) noexcept {
  return with_engine(allocator,
                     [&](Engine&) { return gpumem::c_abi::synchronize(allocator->ordinal, stream); });
}

gpumem_status gpumem_tag(gpumem_allocator* allocator, const char* name, uint8_t* tag) noexcept {
  return with_engine(allocator, tag, "where to store the tag", [&](Engine&) -> gpumem::Result<std::uint8_t> {
    if (auto given = not_null(name, "name"); !given) return given.error();
    const auto known = gpumem::c_abi::current_of(*allocator).engine.tag(name);
    if (!known) return known.error();
    return known->number;
  });
}

gpumem_status gpumem_allocator_trim(gpumem_allocator* allocator, uint64_t bytes, uint64_t* given) noexcept {
  return with_engine(allocator, [&](Engine&) -> gpumem::Result<void> {
    std::uint64_t sum = 0;
    auto done = gpumem::c_abi::for_each_engine(*allocator, [&](Engine& engine) -> gpumem::Result<void> {
      if (sum >= bytes && sum != 0) return {};
      const auto trimmed = engine.trim({bytes - sum});
      if (!trimmed) return trimmed.error();
      sum += trimmed->count;
      return {};
    });
    if (done && given != nullptr) *given = sum;
    return done;
  });
}

gpumem_status gpumem_allocator_reset_peaks(gpumem_allocator* allocator) noexcept {
  return with_engine(allocator, [&](Engine&) {
    return gpumem::c_abi::for_each_engine(*allocator, [](Engine& engine) { return engine.reset_peaks(); });
  });
}

gpumem_status gpumem_allocator_close(gpumem_allocator* allocator) noexcept {
  return with_engine(allocator, [&](Engine&) { return gpumem::c_abi::close(*allocator); });
}

gpumem_status gpumem_allocator_destroy(gpumem_allocator* allocator) noexcept {
  return with_engine(allocator, [&](Engine&) { return gpumem::c_abi::destroy(*allocator); });
}

void gpumem_allocator_free(gpumem_allocator* allocator) noexcept {
  if (gpumem::c_abi::may_free(allocator)) gpumem::c_abi::free_handle(allocator);
}

}  // extern "C"
