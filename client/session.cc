#include "gpumem/session.h"

#include <algorithm>

#include "client/connection.h"
#include "client/growth.h"
#include "client/slice_state.h"

namespace gpumem {
namespace {

Result<void> check_usable(const client::Connection* connection) {
  if (connection == nullptr) return Error{Code::kFailedPrecondition, "the session has been moved from"};
  return connection->usable();
}

DeviceUsage usage_of(const std::string& device, const DeviceFigures& figures) {
  DeviceUsage usage{device,          {figures.pool},    {figures.free},      {figures.guarantee},
                    {figures.limit}, {figures.charged}, {figures.available}, {figures.pressure}};
  if (figures.pressure != 0) usage.pressure_deadline = client::deadline_of(figures.pressure_deadline);
  return usage;
}

/// Runs in the process that opened the session. No handler is called after this returns.
void remove_handler(client::Connection* connection) {
  if (check_usable(connection)) connection->pressure().set_handler({});
}

Error wrong_step(std::size_t index, std::string_view what) {
  return {Code::kInvalidArgument, "step " + std::to_string(index) + ": " + std::string(what)};
}

}  // namespace

Result<Session> Session::connect(const SessionOptions& options) {
  auto connection = client::Connection::open(options);
  if (!connection) return connection.error();
  return Session(std::move(*connection));
}

Session::Session(std::shared_ptr<client::Connection> connection) : connection_(std::move(connection)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&& other) noexcept {
  if (this == &other) return *this;
  remove_handler(connection_.get());
  client::abandon_if_forked(connection_);
  connection_ = std::move(other.connection_);
  return *this;
}
Session::~Session() {
  remove_handler(connection_.get());
  client::abandon_if_forked(connection_);
}

Result<Slice> Session::open_slice(const SliceOptions& options) {
  if (auto usable = check_usable(connection_.get()); !usable) return usable.error();
  auto state = client::SliceState::open(connection_, options);
  if (!state) return state.error();
  return Slice(std::move(*state));
}

Result<std::vector<Bytes>, GrowError> Session::grow_all(std::span<const GrowStep> steps,
                                                        GrowOptions options) {
  if (auto usable = check_usable(connection_.get()); !usable) return GrowError(usable.error());
  if (!options.least.is_zero()) {
    return GrowError({Code::kInvalidArgument, "what is enough is each step's own to say"});
  }
  std::vector<client::GrowthPart> parts;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    client::SliceState* slice = steps[i].slice != nullptr ? steps[i].slice->state_.get() : nullptr;
    if (slice == nullptr) return GrowError(wrong_step(i, "no slice, or one that has been moved from"));
    if (&slice->connection() != connection_.get()) {
      return GrowError(wrong_step(i, "the slice belongs to another session"));
    }
    const bool again = std::ranges::any_of(parts, [&](const client::GrowthPart& part) {
      return part.slice->device().index == slice->device().index;
    });
    if (again) return GrowError(wrong_step(i, "another step is of this device, too"));
    parts.push_back({slice, steps[i].target, steps[i].least});
  }
  if (parts.empty()) return std::vector<Bytes>{};
  return client::grow_slices(parts, options);
}

Result<void> Session::on_pressure(PressureHandler handler) {
  if (auto usable = check_usable(connection_.get()); !usable) return usable;
  const bool wanted = static_cast<bool>(handler);
  connection_->pressure().set_handler(std::move(handler));
  return wanted ? connection_->pressure().start() : Result<void>();
}

Result<void> Session::charge(const std::string& device, Bytes bytes) {
  if (auto usable = check_usable(connection_.get()); !usable) return usable;
  if (auto started = connection_->pressure().start(); !started) return started;
  const auto index = connection_->device_index(device);
  if (!index) return index.error();
  auto charged = connection_->lane().call(lane::Charge{*index, bytes.count});
  if (!charged) return charged.error();
  return {};
}

Result<std::vector<DeviceUsage>> Session::usage() const {
  if (auto usable = check_usable(connection_.get()); !usable) return usable.error();
  auto figures = connection_->broker_figures();
  if (!figures) return figures.error();
  const std::vector<std::string>& devices = connection_->welcome().devices;
  const std::size_t count = std::min<std::size_t>(devices.size(), figures->device_count);
  std::vector<DeviceUsage> usage;
  for (std::size_t i = 0; i < count; ++i) {
    usage.push_back(usage_of(devices[i], figures->devices[i]));
  }
  return usage;
}

Result<void> Session::ping() {
  if (auto usable = check_usable(connection_.get()); !usable) return usable.error();
  auto answered = connection_->lane().call(lane::Ping{});
  if (!answered) return answered.error();
  return {};
}

std::uint64_t Session::id() const { return connection_->welcome().session; }
const std::string& Session::tenant() const { return connection_->welcome().tenant; }
const std::string& Session::driver_folder() const { return connection_->driver_folder(); }

}  // namespace gpumem
