#include "gpumem/session.h"

#include "client/c/handles.h"
#include "client/c/last_error.h"

namespace gpumem::c_abi {
namespace {

std::int64_t milliseconds_until(std::chrono::steady_clock::time_point deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

gpumem_usage usage_of(const DeviceUsage& device) {
  return {
      sizeof(gpumem_usage),   device.device.c_str(),
      device.pool.count,      device.free.count,
      device.guarantee.count, device.limit.count,
      device.charged.count,   device.available.count,
      device.pressure.count,  device.pressure_deadline ? milliseconds_until(*device.pressure_deadline) : 0};
}

PressureHandler handler_of(gpumem_pressure_handler handler, void* context) {
  if (handler == nullptr) return {};
  return [handler, context](const Pressure& pressure) {
    const gpumem_pressure asked{sizeof(gpumem_pressure), pressure.device.c_str(), pressure.bytes.count,
                                milliseconds_until(pressure.deadline)};
    return Bytes{handler(&asked, context)};
  };
}

/// Applies `call` to the session.
template <class Call>
gpumem_status with_session(gpumem_session* handle, Call call) noexcept {
  return guarded([&] {
    if (auto given = not_null(handle, "session"); !given) return fail(given.error());
    auto session = handle->session.use();
    if (!session) return fail(session.error());
    const Result<void> done = call(**session);
    return done ? GPUMEM_OK : fail(done.error());
  });
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

}  // namespace

Result<gpumem_session*> connect(const SessionOptions& options, Owner owner) {
  auto session = Session::connect(options);
  if (!session) return session.error();
  return new gpumem_session(std::move(*session), owner);
}

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
    const auto connected = gpumem::c_abi::connect(*read, gpumem::c_abi::Owner::kProgram);
    if (!connected) return fail(connected.error());
    *session = *connected;
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

gpumem_status gpumem_session_ping(gpumem_session* session) noexcept {
  return with_session(session, [](gpumem::Session& open) { return open.ping(); });
}

gpumem_status gpumem_session_usage(gpumem_session* session, gpumem_usage_visitor visitor,
                                   void* context) noexcept {
  return with_session(session, [&](const gpumem::Session& open) {
    return gpumem::c_abi::visit_usage(open, visitor, context);
  });
}

gpumem_status gpumem_session_charge(gpumem_session* session, const char* device, uint64_t bytes) noexcept {
  return with_session(session, [&](gpumem::Session& open) {
    auto given = not_null(device, "device");
    return given ? open.charge(device, {bytes}) : given;
  });
}

gpumem_status gpumem_session_on_pressure(gpumem_session* session, gpumem_pressure_handler handler,
                                         void* context) noexcept {
  return with_session(session, [&](gpumem::Session& open) {
    return open.on_pressure(gpumem::c_abi::handler_of(handler, context));
  });
}

uint64_t gpumem_session_id(const gpumem_session* session) noexcept {
  if (session != nullptr) return session->id;
  return fail(gpumem::Code::kInvalidArgument, "session is NULL"), 0;
}

const char* gpumem_session_tenant(const gpumem_session* session) noexcept {
  if (session != nullptr) return session->tenant.c_str();
  return fail(gpumem::Code::kInvalidArgument, "session is NULL"), nullptr;
}

}  // extern "C"
