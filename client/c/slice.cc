#include "client/c/handles.h"
#include "client/c/last_error.h"
#include "client/c/structs.h"
#include "client/slice/growth.h"

namespace gpumem::c_abi {
namespace {

/// Applies `call` to the slice. Stores the result in `out`, unless that is null.
template <class Out, class Call>
gpumem_status with_slice(gpumem_slice* handle, Out* out, Call call) noexcept {
  return with_object(handle, &gpumem_slice::slice, "slice", [&](Slice& slice) {
    auto done = call(slice);
    if (done && out != nullptr) *out = static_cast<Out>(*done);
    return done;
  });
}

Result<std::uint64_t> count(Result<Bytes> bytes) {
  if (!bytes) return bytes.error();
  return bytes->count;
}

Result<SliceOptions> read_slice_options(const gpumem_slice_options* given) {
  const auto known = read_struct(given, "gpumem_slice_options");
  if (!known) return known.error();
  return SliceOptions{
      text(known->device), {known->limit}, text(known->label), known->trim_on_pressure, known->pinned};
}

Result<std::uint64_t, GrowError> grow(gpumem_slice& handle, Slice& slice, Bytes target,
                                      const gpumem_grow_options* given) {
  Stopping stopping;
  stopping.add(handle.closing.get_token());
  const auto options = read_options(given, stopping);
  if (!options) return GrowError(options.error());
  const client::GrowthPart parts[] = {{&slice, target, options->least}};
  const auto grown = client::grow_slices(parts, *options);
  if (!grown) return grown.error();
  return grown->front().count;
}

Result<gpumem_slice*> open(Session& session, const SliceOptions& options) {
  auto slice = Slice::open(session.connection(), options);
  if (!slice) return slice.error();
  return new gpumem_slice(std::move(*slice));
}

}  // namespace
}  // namespace gpumem::c_abi

using gpumem::c_abi::fail;
using gpumem::c_abi::guarded;
using gpumem::c_abi::not_null;
using gpumem::c_abi::with_slice;

extern "C" {

gpumem_status gpumem_slice_open(gpumem_session* session, const gpumem_slice_options* options,
                                gpumem_slice** slice) noexcept {
  return guarded([&] {
    if (auto given = not_null(session, "session"); !given) return fail(given.error());
    if (auto given = not_null(slice, "where to store the slice"); !given) return fail(given.error());
    const auto read = gpumem::c_abi::read_slice_options(options);
    if (!read) return fail(read.error());
    const auto open = session->session.use();
    if (!open) return fail(open.error());
    const auto opened = gpumem::c_abi::open(**open, *read);
    if (!opened) return fail(opened.error());
    *slice = *opened;
    return GPUMEM_OK;
  });
}

gpumem_status gpumem_slice_grow(gpumem_slice* slice, uint64_t target, const gpumem_grow_options* options,
                                uint64_t* committed) noexcept {
  return with_slice(slice, committed, [&](gpumem::c_abi::Slice& open) {
    return gpumem::c_abi::grow(*slice, open, {target}, options);
  });
}

gpumem_status gpumem_slice_shrink(gpumem_slice* slice, uint64_t target, uint64_t* committed) noexcept {
  return with_slice(slice, committed,
                    [&](gpumem::c_abi::Slice& open) { return gpumem::c_abi::count(open.shrink({target})); });
}

gpumem_status gpumem_slice_release(gpumem_slice* slice, uint64_t bytes, uint64_t keep,
                                   uint64_t* released) noexcept {
  return with_slice(slice, released, [&](gpumem::c_abi::Slice& open) {
    return gpumem::c_abi::count(open.release({bytes}, {keep}));
  });
}

gpumem_status gpumem_slice_set_in_use(gpumem_slice* slice, uint64_t bytes, bool* is_committed) noexcept {
  return with_slice(slice, is_committed, [&](gpumem::c_abi::Slice& open) {
    return gpumem::Result<bool>(open.set_in_use({bytes}));
  });
}

uint64_t gpumem_slice_committed(gpumem_slice* slice) noexcept {
  uint64_t committed = 0;
  (void)with_slice(slice, &committed, [](const gpumem::c_abi::Slice& open) {
    return gpumem::Result<uint64_t>(open.committed().count);
  });
  return committed;
}

gpumem_address gpumem_slice_base(const gpumem_slice* slice) noexcept {
  if (slice != nullptr) return slice->base;
  return fail(gpumem::Code::kInvalidArgument, "slice is NULL"), 0;
}

uint64_t gpumem_slice_limit(const gpumem_slice* slice) noexcept {
  if (slice != nullptr) return slice->limit.count;
  return fail(gpumem::Code::kInvalidArgument, "slice is NULL"), 0;
}

uint64_t gpumem_slice_granularity(const gpumem_slice* slice) noexcept {
  if (slice != nullptr) return slice->granularity.count;
  return fail(gpumem::Code::kInvalidArgument, "slice is NULL"), 0;
}

const char* gpumem_slice_device(const gpumem_slice* slice) noexcept {
  if (slice != nullptr) return slice->device.c_str();
  return fail(gpumem::Code::kInvalidArgument, "slice is NULL"), nullptr;
}

int gpumem_slice_ordinal(const gpumem_slice* slice) noexcept {
  if (slice != nullptr) return slice->ordinal;
  return fail(gpumem::Code::kInvalidArgument, "slice is NULL"), -1;
}

gpumem_status gpumem_slice_close(gpumem_slice* slice) noexcept {
  return guarded([&] {
    if (auto given = not_null(slice, "slice"); !given) return fail(given.error());
    const auto taken = slice->slice.take();
    if (!taken) return fail(taken.error());
    slice->closing.request_stop();
    return GPUMEM_OK;
  });
}

void gpumem_slice_free(gpumem_slice* slice) noexcept {
  if (slice != nullptr && slice->is_of_this_process()) gpumem::c_abi::free_handle(slice);
}

gpumem_status gpumem_canceller_create(gpumem_canceller** canceller) noexcept {
  return guarded([&] {
    if (auto given = not_null(canceller, "where to store the canceller"); !given) return fail(given.error());
    *canceller = std::make_unique<gpumem_canceller>().release();
    return GPUMEM_OK;
  });
}

gpumem_status gpumem_canceller_cancel(gpumem_canceller* canceller) noexcept {
  return guarded([&] {
    if (auto given = not_null(canceller, "canceller"); !given) return fail(given.error());
    canceller->source.request_stop();
    return GPUMEM_OK;
  });
}

void gpumem_canceller_free(gpumem_canceller* canceller) noexcept { delete canceller; }

}  // extern "C"
