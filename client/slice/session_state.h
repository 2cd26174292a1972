#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/session/connection.h"
#include "gpumem/options.h"
#include "gpumem/pressure.h"
#include "gpumem/statistics.h"

namespace gpumem::client {

class SliceState;

/// As gpumem::GrowStep.
struct SliceStep {
  SliceState* slice = nullptr;
  Bytes bytes;
  Bytes min_bytes{};
};

/// The implementation of Session.
/// Threads  any.
class SessionState {
 public:
  /// Errors  as Session::connect.   Blocks  until `deadline` at most, or for the timeout.
  static Result<std::shared_ptr<SessionState>> connect(const SessionOptions& options,
                                                       Lane::Clock::time_point deadline);
  static Result<std::shared_ptr<SessionState>> connect(const SessionOptions& options) {
    return connect(options, Lane::deadline_in(options.timeout));
  }
  /// Removes the handler. Not run in a forked child.
  ~SessionState();
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  // As Session's.
  Result<std::vector<Bytes>, GrowError> grow_all(std::span<const SliceStep> steps,
                                                 const GrowOptions& options);
  Result<void> on_pressure(PressureHandler handler);
  Result<void> charge(const std::string& device, Bytes bytes);
  Result<std::vector<DeviceUsage>> usage() const;
  Result<void> ping();
  Result<std::uint64_t> begin_job(const JobOptions& options);
  Result<void, GrowError> reserve_for_job(const std::string& device, Bytes bytes, const GrowOptions& options);
  Result<JobAccount> job_account();
  std::uint64_t id() const { return connection_->welcome().session; }
  std::uint64_t job() const { return connection_->welcome().job; }
  const std::string& tenant() const { return connection_->welcome().tenant; }
  const std::string& driver_folder() const { return connection_->driver_folder(); }

  /// For what is opened in the session.
  const std::shared_ptr<Connection>& connection() const { return connection_; }

 private:
  explicit SessionState(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  const std::shared_ptr<Connection> connection_;
};

}  // namespace gpumem::client
