#include "client/cli/run/line/place.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "client/cli/run/line/job_reservation.h"
#include "client/cli/views/views.h"

namespace gpumem::cli {
namespace {

constexpr Bytes kWholeInPoints{10'000};

bool is_percentage(const Amount& limit) { return limit.kind() == Amount::Kind::kPercent; }

std::string visible_devices() {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  return value == nullptr ? "" : value;
}

void add_limit(CLI::App& command, const std::string& name, std::optional<Amount>& into,
               const std::string& description) {
  const auto read_limit = [name, &into](const std::string& text) {
    const auto read = parse_amount(text);
    if (!read) throw CLI::ValidationError(name, read.error().message);
    if (read->kind() == Amount::Kind::kAllBut)
      throw CLI::ValidationError(name, "'" + text + "' is neither bytes nor a percentage");
    if (read->of(kWholeInPoints).is_zero()) throw CLI::ValidationError(name, "0 bytes are of no use");
    into = *read;
  };
  command.add_option_function<std::string>(name, read_limit, description)->type_name("BYTES|PERCENT");
}

}  // namespace

void add_place(CLI::App& command, PlaceOptions& options) {
  add_limit(command, "--limit", options.limit,
            "The most that all its processes together can hold: 8GiB, 50% [the tenant's]");
  add_limit(command, "--host-limit", options.host_limit,
            "The most that they can pin or be lent of the host's memory: 4GiB, 25% [the tenant's]");
  command
      .add_option("--device", options.device,
                  "Only this device: UUID, or its place in `gpumem status`; auto: one with room; all [auto]")
      ->type_name("DEVICE");
}

Result<void> check_least_limit(Bytes limit, const std::string& whose) {
  if (limit >= kLeastBytes) return {};
  return Error{Code::kInvalidArgument, whose + ": " + to_string(limit) + " is less than " +
                                           to_string(kLeastBytes) + ", the least that can be borrowed"};
}

Result<void> check_place(const PlaceOptions& options) {
  const auto check = [](const std::optional<Amount>& limit, const std::string& name) {
    if (!limit || is_percentage(*limit)) return Result<void>();
    return check_least_limit(limit->of({}), name);
  };
  auto possible = check(options.limit, "--limit");
  return possible ? check(options.host_limit, "--host-limit") : possible;
}

Result<Place> Place::find(Session session, PlaceOptions options, std::filesystem::path runtime_folder) {
  auto usage = session.usage();
  if (!usage) return usage.error();
  return Place(std::move(session), std::move(options), std::move(runtime_folder), std::move(*usage));
}

Place::Place(Session session, PlaceOptions options, std::filesystem::path runtime_folder,
             std::vector<DeviceUsage> usage)
    : session_(std::move(session)),
      options_(std::move(options)),
      runtime_folder_(std::move(runtime_folder)),
      usage_(std::move(usage)) {
  for (const DeviceUsage& device : usage_) lent_.add_devices()->set_uuid(device.device);
}

// Of the device that is chosen, else of the one that has the most. In a job, the job's.
Bytes Place::most() const {
  Bytes most;
  for (const DeviceUsage& one : usage_) {
    if (device_.empty() || device_ == one.device) most = std::max(most, most_of(one));
  }
  return most;
}

Bytes Place::bounded_limit() const { return std::max(options_.limit->of(most()), kLeastBytes); }

Result<void> Place::choose(std::optional<Bytes> outer, Progress& progress) {
  const std::string& named = options_.device;
  const bool any = named == kAnyDevice || (named.empty() && visible_devices().empty());
  if (!any && !named.empty() && named != kAllDevices) {
    auto uuid = find_device(lent_, named);
    if (!uuid) return uuid.error().in("--device");
    device_ = *uuid;
  }
  if (options_.limit) {
    limit_ = bounded_limit();
    const std::string said = "--limit " + options_.limit->text();
    if (outer && !outer->is_zero() && *outer < *limit_) {
      progress.say(said + " is more than GPUMEM_LIMIT allows: " + to_string(*outer) + " hold");
      limit_ = *outer;
      options_.limit = Amount::absolute(*outer);
    } else if (*limit_ > most()) {
      progress.say(said + ": the limit is " + to_string(most()) + ", which is all that the " +
                   (is_nested() ? "job" : "tenant") + " may have");
    }
  }
  if (options_.host_limit && is_nested()) {
    progress.say("--host-limit " + options_.host_limit->text() +
                 " has no effect: the command is in the job of the gpumem run around it");
  }
  if (any && usage_.size() > 1) choice_.emplace(usage_, options_.limit, is_nested());
  return {};
}

Result<void> Place::begin(const std::string& label) {
  JobOptions job{.label = label};
  if (options_.limit && is_percentage(*options_.limit))
    job.limit_points = options_.limit->of(kWholeInPoints).count;
  else if (options_.limit)
    job.limit = *limit_;
  if (options_.host_limit && is_percentage(*options_.host_limit))
    job.host_limit_points = options_.host_limit->of(kWholeInPoints).count;
  else if (options_.host_limit)
    job.host_limit = options_.host_limit->of({});
  const auto begun = session_.begin_job(job);
  if (!begun) return begun.error();
  job_ = *begun;
  return {};
}

Result<std::optional<int>> Place::reserve_on(const std::string& device, std::chrono::milliseconds wait,
                                             const Signals& signals, Progress& progress) {
  const auto usage = std::ranges::find(usage_, device, &DeviceUsage::device);
  const Bytes most = most_of(*usage);
  const Bytes bytes =
      std::max(std::min(options_.limit->of(most), most).rounded_down(kLeastBytes), kLeastBytes);
  return reserve_for_job(session_,
                         {runtime_folder_, device, device_name(device, uuids_of(lent_)), bytes, wait},
                         signals, progress);
}

Result<std::string> Place::first_device() const {
  return device_.empty() ? first_visible(lent_, visible_devices()) : Result<std::string>(device_);
}

Result<std::optional<int>> Place::settle(const Signals& signals, Progress& progress) {
  const bool reserves = options_.limit && options_.wait && !is_nested();
  if (options_.limit && options_.wait && is_nested()) {
    progress.say("nothing is reserved for --limit " + options_.limit->text() +
                 ": the command is in the job of the gpumem run around it");
  }
  if (choice_) {
    for (const std::string& device : choice_->with_room()) {
      device_ = device;
      if (!reserves) return std::optional<int>();
      auto reserved = reserve_on(device, {}, signals, progress);
      if (reserved || reserved.error().code != Code::kResourceExhausted) return reserved;
    }
    device_ = choice_->with_shortest_line(runtime_folder_);
  }
  if (!reserves) return std::optional<int>();
  const auto device = first_device();
  if (!device) return device.error();
  return reserve_on(*device, *options_.wait, signals, progress);
}

Result<std::optional<int>> Place::take(const Signals& signals, Progress& progress) {
  auto ended_by = settle(signals, progress);
  if (!ended_by) return ended_by;
  if (options_.limit) limit_ = bounded_limit();
  if (choice_ && options_.device.empty())
    progress.say("on " + device_name(device_, uuids_of(lent_)) + " alone; --device all: on every GPU");
  return ended_by;
}

}  // namespace gpumem::cli
