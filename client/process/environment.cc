#include "client/process/environment.h"

#include <atomic>
#include <cstdlib>

#include "base/text/number.h"
#include "base/text/printable.h"
#include "base/text/time_format.h"
#include "client/process/messages.h"

namespace gpumem::client {
namespace {

std::string variable(const char* name) {
  const char* value = ::secure_getenv(name);
  return value != nullptr ? value : "";
}

void say_once(std::atomic<bool>& said, const std::string& line) {
  if (!said.exchange(true)) say(line);
}

/// `read`, or the default of its type, if the variable's value cannot be read.
template <class T>
T value_of(Result<T> read, std::atomic<bool>& said) {
  if (!read) say_once(said, read.error().message + "; the variable does not count");
  return std::move(read).value_or(T{});
}

}  // namespace

Result<std::string> label_of_environment() {
  std::string label = variable("GPUMEM_NAME");
  if (auto right = check_label(label); !right) return right.error().in("GPUMEM_NAME");
  return label;
}

Result<std::optional<std::chrono::milliseconds>> wait_of_environment() {
  const std::string text = variable("GPUMEM_WAIT");
  if (text.empty()) return std::optional<std::chrono::milliseconds>();
  const auto wait = parse_duration(text);
  if (!wait) return wait.error().in("GPUMEM_WAIT");
  return std::optional(*wait);
}

Result<Bytes> limit_of_environment() {
  const std::string text = variable("GPUMEM_LIMIT");
  if (text.empty()) return Bytes{};
  const auto limit = parse_bytes(text);
  if (!limit) return limit.error().in("GPUMEM_LIMIT");
  if (!limit->is_zero()) return *limit;
  return Error{Code::kInvalidArgument, "GPUMEM_LIMIT: 0 is no limit; leave it unset for none"};
}

Result<std::uint64_t> job_of_environment() {
  const std::string text = variable("GPUMEM_JOB");
  if (text.empty()) return std::uint64_t{0};
  if (const auto job = whole_number<std::uint64_t>(text)) return *job;
  return Error{Code::kInvalidArgument, "GPUMEM_JOB: '" + to_printable(text) + "' is not the number of a job"};
}

SessionDefaults SessionDefaults::from_environment() {
  static std::atomic<bool> said_label{false};
  static std::atomic<bool> said_wait{false};
  static std::atomic<bool> said_limit{false};
  static std::atomic<bool> said_job{false};
  return {value_of(label_of_environment(), said_label),
          value_of(wait_of_environment(), said_wait).value_or(std::chrono::milliseconds(0)),
          value_of(limit_of_environment(), said_limit), value_of(job_of_environment(), said_job)};
}

void tell_of_missing_job(std::uint64_t job, Bytes limit) {
  static std::atomic<bool> said{false};
  say_once(said, "job " + std::to_string(job) + " of GPUMEM_JOB is not there any more, or another user's" +
                     (limit.is_zero() ? "" : "; GPUMEM_LIMIT holds for this process alone"));
}

}  // namespace gpumem::client
