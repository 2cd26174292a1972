#include "client/c/structs.h"
#include "client/c/handles.h"

namespace gpumem::c_abi {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongest = std::chrono::hours(24 * 365);

/// Of a growth or an allocation. Nothing: the default. Errors  kInvalidArgument: negative.
Result<std::optional<milliseconds>> read_wait(std::int64_t given) {
  if (given == 0) return std::optional<milliseconds>();
  const auto wait = read_duration(given == GPUMEM_AT_ONCE ? 0 : given, "wait_ms");
  if (!wait) return wait.error();
  return std::optional(*wait);
}

}  // namespace

Result<std::chrono::milliseconds> read_duration(std::int64_t milliseconds, const char* what) {
  if (milliseconds < 0) {
    return Error{Code::kInvalidArgument,
                 std::string(what) + " is " + std::to_string(milliseconds) + "; it cannot be negative"};
  }
  return std::min(std::chrono::milliseconds(milliseconds), kLongest);
}

Result<SessionOptions> read_options(const gpumem_session_options* given) {
  const auto known = read_struct(given, "gpumem_session_options");
  if (!known) return known.error();
  SessionOptions options{.runtime_folder = text(known->runtime_folder), .label = text(known->label)};
  const auto timeout = read_duration(known->timeout_ms, "timeout_ms");
  if (!timeout) return timeout.error();
  if (timeout->count() != 0) options.timeout = *timeout;
  options.join_job = !known->no_job;
  return options;
}

Result<JobOptions> read_options(const gpumem_job_options* given) {
  const auto known = read_struct(given, "gpumem_job_options");
  if (!known) return known.error();
  return JobOptions{
      text(known->label), {known->limit}, known->limit_points, {known->host_limit}, known->host_limit_points};
}

Result<AllocatorOptions> read_options(const gpumem_allocator_options* given) {
  const auto known = read_struct(given, "gpumem_allocator_options");
  if (!known) return known.error();
  AllocatorOptions options{
      .device = text(known->device), .limit = {known->limit}, .label = text(known->label)};
  const auto wait = read_wait(known->wait_ms);
  if (!wait) return wait.error();
  options.wait = *wait;
  const auto idle = read_duration(known->idle_ms == GPUMEM_AT_ONCE ? 0 : known->idle_ms, "idle_ms");
  if (!idle) return idle.error();
  if (known->idle_ms != 0) options.idle = *idle;
  options.pageable = known->pageable;
  return options;
}

Result<GrowOptions> read_options(const gpumem_grow_options* given, Stopping& stopping) {
  const auto known = read_struct(given, "gpumem_grow_options");
  if (!known) return known.error();
  const auto wait = read_wait(known->wait_ms);
  if (!wait) return wait.error();
  if (known->canceller != nullptr) stopping.add(known->canceller->source.get_token());
  return GrowOptions{*wait, {known->least}, stopping.token()};
}

}  // namespace gpumem::c_abi
