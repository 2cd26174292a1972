#include "gpumem/session.h"

#include <algorithm>

#include "client/connection.h"
#include "client/slice_state.h"

namespace gpumem {
namespace {

Result<void> check_usable(const client::Connection* connection) {
  if (connection == nullptr) return Error{Code::kFailedPrecondition, "the session has been moved from"};
  return connection->usable();
}

DeviceUsage usage_of(const std::string& device, const DeviceFigures& figures) {
  return {device,          {figures.pool},    {figures.free},      {figures.guarantee},
          {figures.limit}, {figures.charged}, {figures.available}, {figures.pressure}};
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
  client::abandon_if_forked(connection_);
  connection_ = std::move(other.connection_);
  return *this;
}
Session::~Session() { client::abandon_if_forked(connection_); }

Result<Slice> Session::open_slice(const SliceOptions& options) {
  if (auto usable = check_usable(connection_.get()); !usable) return usable.error();
  auto state = client::SliceState::open(connection_, options);
  if (!state) return state.error();
  return Slice(std::move(*state));
}

Result<std::vector<DeviceUsage>> Session::usage() const {
  if (auto usable = check_usable(connection_.get()); !usable) return usable.error();
  auto figures = connection_->broker_figures();
  if (!figures) return figures.error();
  const auto& devices = connection_->welcome().devices();
  const std::size_t count =
      std::min<std::size_t>(static_cast<std::size_t>(devices.size()), figures->device_count);
  std::vector<DeviceUsage> usage;
  for (std::size_t i = 0; i < count; ++i) {
    usage.push_back(usage_of(devices[static_cast<int>(i)], figures->devices[i]));
  }
  return usage;
}

Result<void> Session::ping() {
  if (auto usable = check_usable(connection_.get()); !usable) return usable.error();
  auto answered = connection_->rpc().call(&v1::Broker::Stub::Ping, v1::PingRequest());
  if (!answered) return answered.error();
  return {};
}

std::uint64_t Session::id() const { return connection_->welcome().session(); }
const std::string& Session::tenant() const { return connection_->welcome().tenant(); }
const std::string& Session::driver_folder() const { return connection_->driver_folder(); }

}  // namespace gpumem
