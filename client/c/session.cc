#include <cstddef>
#include <memory>
#include <vector>

#include "client/c/handles.h"
#include "client/c/last_error.h"
#include "client/c/structs.h"

namespace gpumem::c_abi {
namespace {

std::int64_t milliseconds_until(std::chrono::steady_clock::time_point deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

std::int64_t nanoseconds_of(std::chrono::steady_clock::time_point deadline) {
  return std::chrono::nanoseconds(deadline.time_since_epoch()).count();
}

gpumem_usage usage_of(const DeviceUsage& device) {
  return {sizeof(gpumem_usage),
          device.device.c_str(),
          device.pool.count,
          device.free.count,
          device.guarantee.count,
          device.limit.count,
          device.charged.count,
          device.available.count,
          device.pressure.count,
          device.pressure_deadline ? milliseconds_until(*device.pressure_deadline) : 0,
          device.pressure_deadline ? nanoseconds_of(*device.pressure_deadline) : 0};
}

PressureHandler handler_of(gpumem_pressure_handler handler, std::shared_ptr<void> context) {
  if (handler == nullptr) return {};
  return [handler, context = std::move(context)](const Pressure& pressure) {
    const gpumem_pressure asked{sizeof(gpumem_pressure), pressure.device.c_str(), pressure.bytes.count,
                                milliseconds_until(pressure.deadline), nanoseconds_of(pressure.deadline)};
    return Bytes{handler(&asked, context.get())};
  };
}

Result<void> visit_usage(const Session& session, gpumem_usage_visitor visitor, void* context) {
  if (auto given = not_null(reinterpret_cast<const void*>(visitor), "visitor"); !given) return given;
  const auto devices = session.usage();
  if (!devices) return devices.error();
  for (const DeviceUsage& device : *devices) {
    const gpumem_usage usage = usage_of(device);
    if (!visitor(&usage, context)) break;
  }
  return {};
}

/// The steps of a joint growth, and the slices, which they keep open.
struct Steps {
  std::vector<std::shared_ptr<Slice>> slices;
  std::vector<client::SliceStep> parts;
  Stopping stopping;
};

/// Where the step `index` begins: all have the size that the first one says.
gpumem_grow_step* step_at(gpumem_grow_step* steps, std::size_t index) {
  auto* bytes = reinterpret_cast<unsigned char*>(steps) + index * steps->struct_size;
  return reinterpret_cast<gpumem_grow_step*>(bytes);
}

Result<void> read_step(const gpumem_grow_step& given, Steps& into) {
  const auto known = read_struct(&given, "gpumem_grow_step");
  if (!known) return known.error();
  if (known->slice == nullptr) {
    into.parts.push_back({});
    return {};
  }
  auto slice = known->slice->slice.use();
  if (!slice) return slice.error();
  into.stopping.add(known->slice->closing.get_token());
  into.parts.push_back({slice->get(), {known->target}, {known->least}});
  into.slices.push_back(std::move(*slice));
  return {};
}

Result<void> read_steps(gpumem_grow_step* steps, std::size_t count, Steps& into) {
  if (count == 0) return {};
  if (auto given = not_null(steps, "steps"); !given) return given;
  for (std::size_t i = 0; i < count; ++i) {
    const gpumem_grow_step* step = step_at(steps, i);
    if (step->struct_size != steps->struct_size) return wrong_size("gpumem_grow_step", step->struct_size);
    if (auto read = read_step(*step, into); !read) return read;
  }
  return {};
}

void store(const std::vector<Bytes>& committed, gpumem_grow_step* steps) {
  constexpr std::size_t kEnd = offsetof(gpumem_grow_step, committed) + sizeof(std::uint64_t);
  for (std::size_t i = 0; i < committed.size() && steps->struct_size >= kEnd; ++i)
    step_at(steps, i)->committed = committed[i].count;
}

Result<void, GrowError> grow_all(Session& session, gpumem_grow_step* steps, std::size_t count,
                                 const gpumem_grow_options* options) {
  Steps read;
  const auto how = read_options(options, read.stopping);
  if (!how) return GrowError(how.error());
  if (auto all = read_steps(steps, count, read); !all) return GrowError(all.error());
  const auto grown = session.grow_all(read.parts, *how);
  if (!grown) return grown.error();
  store(*grown, steps);
  return {};
}

Result<std::uint64_t> begin_job(Session& session, const gpumem_job_options* given) {
  const auto options = read_options(given);
  if (!options) return options.error();
  return session.begin_job(*options);
}

Result<void, GrowError> reserve_for_job(Session& session, const char* device, Bytes bytes,
                                        const gpumem_grow_options* given) {
  if (auto named = not_null(device, "device"); !named) return GrowError(named.error());
  Stopping stopping;
  const auto options = read_options(given, stopping);
  if (!options) return GrowError(options.error());
  return session.reserve_for_job(device, bytes, *options);
}

Result<void> describe_job(Session& session, gpumem_job_account* out) {
  const auto account = session.job_account();
  if (!account) return account.error();
  return write_struct(gpumem_job_account{sizeof(gpumem_job_account), account->peak.count,
                                         account->waited.count(), account->denied},
                      out, "gpumem_job_account");
}

// The handler may call the session until it has returned, so it is removed before the session closes.
void free(gpumem_session& handle) {
  const NotCancelled whole;
  if (const auto open = handle.session.use()) (void)(*open)->on_pressure({});
  (void)handle.session.take();
  delete &handle;
}

}  // namespace
}  // namespace gpumem::c_abi

using gpumem::c_abi::fail;
using gpumem::c_abi::guarded;
using gpumem::c_abi::not_null;
using gpumem::c_abi::with_session;

extern "C" {

gpumem_status gpumem_session_connect(const gpumem_session_options* options,
                                     gpumem_session** session) noexcept {
  return guarded([&] {
    if (auto given = not_null(session, "where to store the session"); !given) return fail(given.error());
    const auto read = gpumem::c_abi::read_options(options);
    if (!read) return fail(read.error());
    auto connected = gpumem::c_abi::Session::connect(*read);
    if (!connected) return fail(connected.error());
    *session =
        std::make_unique<gpumem_session>(std::move(*connected), gpumem::c_abi::Owner::kProgram).release();
    return GPUMEM_OK;
  });
}

gpumem_status gpumem_session_close(gpumem_session* session) noexcept {
  return guarded([&] {
    if (auto given = not_null(session, "session"); !given) return fail(given.error());
    if (session->owner == gpumem::c_abi::Owner::kProcess) {
      return fail(gpumem::Code::kFailedPrecondition, "the process's own session ends with the process");
    }
    const auto taken = session->session.take();
    if (!taken) return fail(taken.error());
    (void)(*taken)->on_pressure({});  // here, because a call in progress may keep the session alive longer
    return GPUMEM_OK;
  });
}

void gpumem_session_free(gpumem_session* session) noexcept {
  if (gpumem::c_abi::may_free(session)) gpumem::c_abi::free(*session);
}

gpumem_status gpumem_session_ping(gpumem_session* session) noexcept {
  return with_session(session, [](gpumem::c_abi::Session& open) { return open.ping(); });
}

gpumem_status gpumem_session_usage(gpumem_session* session, gpumem_usage_visitor visitor,
                                   void* context) noexcept {
  return with_session(session, [&](const gpumem::c_abi::Session& open) {
    return gpumem::c_abi::visit_usage(open, visitor, context);
  });
}

gpumem_status gpumem_session_charge(gpumem_session* session, const char* device, uint64_t bytes) noexcept {
  return with_session(session, [&](gpumem::c_abi::Session& open) {
    auto given = not_null(device, "device");
    return given ? open.charge(device, {bytes}) : given;
  });
}

gpumem_status gpumem_session_on_pressure(gpumem_session* session, gpumem_pressure_handler handler,
                                         void* context) noexcept {
  return with_session(session, [&](gpumem::c_abi::Session& open) {
    return open.on_pressure(gpumem::c_abi::handler_of(handler, {std::shared_ptr<void>(), context}));
  });
}

gpumem_status gpumem_session_on_pressure_owned(gpumem_session* session, gpumem_pressure_handler handler,
                                               void* context, gpumem_release release) noexcept {
  return guarded([&] {
    const auto given = not_null(reinterpret_cast<const void*>(release), "release");
    if (!given) return fail(given.error());
    const std::shared_ptr<void> owned(context, release);
    return with_session(session, [&](gpumem::c_abi::Session& open) {
      return open.on_pressure(gpumem::c_abi::handler_of(handler, owned));
    });
  });
}

gpumem_status gpumem_session_grow_all(gpumem_session* session, gpumem_grow_step* steps, size_t count,
                                      const gpumem_grow_options* options) noexcept {
  return with_session(session, [&](gpumem::c_abi::Session& open) {
    return gpumem::c_abi::grow_all(open, steps, count, options);
  });
}

gpumem_status gpumem_session_begin_job(gpumem_session* session, const gpumem_job_options* options,
                                       uint64_t* job) noexcept {
  return with_session(session, [&](gpumem::c_abi::Session& open) -> gpumem::Result<void> {
    if (auto given = not_null(job, "where to store the job"); !given) return given;
    const auto begun = gpumem::c_abi::begin_job(open, options);
    if (!begun) return begun.error();
    *job = *begun;
    return {};
  });
}

gpumem_status gpumem_session_reserve_for_job(gpumem_session* session, const char* device, uint64_t bytes,
                                             const gpumem_grow_options* options) noexcept {
  return with_session(session, [&](gpumem::c_abi::Session& open) {
    return gpumem::c_abi::reserve_for_job(open, device, {bytes}, options);
  });
}

gpumem_status gpumem_session_job_account(gpumem_session* session, gpumem_job_account* account) noexcept {
  return with_session(
      session, [&](gpumem::c_abi::Session& open) { return gpumem::c_abi::describe_job(open, account); });
}

uint64_t gpumem_session_id(const gpumem_session* session) noexcept {
  if (session != nullptr) return session->id;
  return fail(gpumem::Code::kInvalidArgument, "session is NULL"), 0;
}

uint64_t gpumem_session_job(const gpumem_session* session) noexcept {
  if (session != nullptr) return session->job;
  return fail(gpumem::Code::kInvalidArgument, "session is NULL"), 0;
}

const char* gpumem_session_tenant(const gpumem_session* session) noexcept {
  if (session != nullptr) return session->tenant.c_str();
  return fail(gpumem::Code::kInvalidArgument, "session is NULL"), nullptr;
}

const char* gpumem_session_driver_folder(const gpumem_session* session) noexcept {
  if (session != nullptr) return session->driver_folder.c_str();
  return fail(gpumem::Code::kInvalidArgument, "session is NULL"), nullptr;
}

}  // extern "C"
