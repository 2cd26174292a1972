#include "client/slice/session_state.h"

#include <algorithm>

#include "base/text/device_name.h"
#include "base/text/printable.h"
#include "client/process/status.h"
#include "client/slice/growth.h"
#include "client/slice/slice_state.h"

namespace gpumem::client {
namespace {

DeviceUsage usage_of(const std::string& device, const DeviceFigures& figures) {
  DeviceUsage usage{device,          {figures.pool},    {figures.free},      {figures.guarantee},
                    {figures.limit}, {figures.charged}, {figures.available}, {figures.pressure}};
  if (figures.pressure != 0) usage.pressure_deadline = deadline_of(figures.pressure_deadline);
  return usage;
}

Error wrong_step(std::size_t index, std::string_view what) {
  return {Code::kInvalidArgument, "step " + std::to_string(index) + ": " + std::string(what)};
}

}  // namespace

Result<std::shared_ptr<SessionState>> SessionState::connect(const SessionOptions& options,
                                                            Lane::Clock::time_point deadline) {
  auto connection = Connection::open(options, deadline);
  if (!connection) return connection.error();
  return std::shared_ptr<SessionState>(new SessionState(std::move(*connection)));
}

SessionState::~SessionState() { connection_->pressure().set_handler({}); }

Result<std::vector<Bytes>, GrowError> SessionState::grow_all(std::span<const SliceStep> steps,
                                                             const GrowOptions& options) {
  if (auto usable = connection_->usable(); !usable) return GrowError(usable.error());
  if (!options.least.is_zero()) {
    return GrowError({Code::kInvalidArgument, "what is enough is each step's own to say"});
  }
  std::vector<GrowthPart> parts;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    SliceState* slice = steps[i].slice;
    if (slice == nullptr) return GrowError(wrong_step(i, "no slice, or one that has been moved from"));
    if (&slice->connection() != connection_.get()) {
      return GrowError(wrong_step(i, "the slice belongs to another session"));
    }
    const bool again = std::ranges::any_of(
        parts, [&](const GrowthPart& part) { return part.slice->device().index == slice->device().index; });
    if (again) return GrowError(wrong_step(i, "another step is of this device, too"));
    parts.push_back({slice, steps[i].bytes, steps[i].min_bytes});
  }
  if (parts.empty()) return std::vector<Bytes>{};
  return grow_slices(parts, options);
}

Result<void> SessionState::on_pressure(PressureHandler handler) {
  if (auto usable = connection_->usable(); !usable) return usable;
  const bool wanted = static_cast<bool>(handler);
  connection_->pressure().set_handler(std::move(handler));
  return wanted ? connection_->pressure().start() : Result<void>();
}

Result<void> SessionState::charge(const std::string& device, Bytes bytes) {
  if (auto usable = connection_->usable(); !usable) return usable;
  if (auto started = connection_->pressure().start(); !started) return started;
  const auto index = connection_->device_index(device);
  if (!index) return index.error();
  auto charged = connection_->lane().call(lane::Charge{*index, bytes.count, 0});
  if (!charged) return charged.error();
  return {};
}

Result<std::vector<DeviceUsage>> SessionState::usage() const {
  if (auto usable = connection_->usable(); !usable) return usable.error();
  auto figures = connection_->broker_figures();
  if (!figures) return figures.error();
  const std::vector<std::string>& devices = connection_->welcome().devices;
  const std::size_t count = std::min<std::size_t>(devices.size(), figures->device_count);
  std::vector<DeviceUsage> usage;
  for (std::size_t i = 0; i < count; ++i) {
    if (devices[i] != kHostStore) usage.push_back(usage_of(devices[i], figures->devices[i]));
  }
  return usage;
}

Result<void> SessionState::ping() {
  if (auto usable = connection_->usable(); !usable) return usable.error();
  auto answered = connection_->lane().call(lane::Ping{});
  if (!answered) return answered.error();
  return {};
}

// The thread resumes the session after a restart of the broker, though its program asks for nothing.
Result<std::uint64_t> SessionState::begin_job(const JobOptions& options) {
  if (auto usable = connection_->usable(); !usable) return usable.error();
  if (auto started = connection_->pressure().start(); !started) return started.error();
  if (auto right = check_label(options.label); !right) return right.error();
  lane::BeginJob request{
      options.limit.count, options.limit_points, options.host_limit.count, options.host_limit_points, {}};
  request.label = decltype(request.label)::of(options.label);
  const auto begun = connection_->lane().call<lane::JobBegun>(request);
  if (!begun) return begun.error();
  return begun->job;
}

Result<void, GrowError> SessionState::reserve_for_job(const std::string& device, Bytes bytes,
                                                      const GrowOptions& options) {
  if (auto usable = connection_->usable(); !usable) return GrowError(usable.error());
  if (!options.least.is_zero()) return GrowError({Code::kInvalidArgument, "a reservation has no least size"});
  const auto index = connection_->device_index(device);
  if (!index) return GrowError(index.error());
  if (options.stop.stop_requested()) return GrowError(called_off());
  const std::chrono::nanoseconds wait = connection_->wait_of(options.wait);
  const auto answer = connection_->lane().deadline();
  return connection_->lane().reserve_for_job({static_cast<std::uint64_t>(wait.count()), *index, bytes.count},
                                             {answer, options.stop, answer + wait});
}

Result<JobAccount> SessionState::job_account() {
  if (auto usable = connection_->usable(); !usable) return usable.error();
  const auto described = connection_->lane().call<lane::JobDescribed>(lane::DescribeJob{});
  if (!described) return described.error();
  return JobAccount{{described->peak},
                    std::chrono::milliseconds(static_cast<std::int64_t>(described->waited)),
                    described->denied};
}

}  // namespace gpumem::client
