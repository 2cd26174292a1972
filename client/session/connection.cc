#include "client/session/connection.h"

#include <algorithm>
#include <atomic>

#include "base/crash_point.h"
#include "base/text/device_name.h"
#include "client/lane/silent_brokers.h"
#include "client/process/environment.h"
#include "client/process/runtime_folder.h"

namespace gpumem::client {

struct Pages {
  SharedPage<const BrokerPage> broker;
  SharedPage<ClientPage> client;
};

namespace {

/// Errors  as map_page; the broker's page is not valid.
Result<Pages> map_pages(const Greeting& greeting) {
  auto broker = map_page<const BrokerPage>(greeting.broker_page.get());
  if (!broker) return broker.error();
  if (auto valid = validate(**broker); !valid) return valid.error();
  auto client = map_page<ClientPage>(greeting.client_page.get());
  if (!client) return client.error();
  return Pages{std::move(*broker), std::move(*client)};
}

}  // namespace

struct Connection::Parts {
  Welcome welcome;
  std::string driver_folder;
  std::chrono::milliseconds default_wait;
  Bytes limit;
  std::unique_ptr<Lane> lane;
  Pages pages;
  OwnFd doorbell;
};

Result<std::shared_ptr<Connection>> Connection::open(const SessionOptions& options,
                                                     Lane::Clock::time_point deadline,
                                                     const std::filesystem::path& driver) {
  SessionDefaults defaults = SessionDefaults::from_environment();
  if (!options.join_job) defaults.job = 0;
  SessionOptions named = options;
  if (named.label.empty()) named.label = defaults.label;
  auto greeted = SilentBrokers::of_process().connect(named, defaults.job, deadline);
  if (!greeted) return greeted.error();
  Greeting& greeting = greeted->greeting;
  const Bytes limit = options.join_job ? defaults.limit : Bytes{};
  if (defaults.job != 0 && greeting.welcome.job == 0) tell_of_missing_job(defaults.job, limit);
  auto pages = map_pages(greeting);
  if (!pages) return pages.error();
  crash_at(CrashPoint::kClientOpen);
  const std::string folder =
      driver.empty() ? client::driver_folder(greeting.welcome.driver_folder).string() : driver.string();
  return std::shared_ptr<Connection>(
      new Connection({std::move(greeting.welcome), folder, defaults.wait, limit, std::move(greeted->lane),
                      std::move(*pages), std::move(greeting.doorbell)}));
}

Connection::Connection(Parts parts)
    : welcome_(std::move(parts.welcome)),
      driver_folder_(std::move(parts.driver_folder)),
      default_wait_(parts.default_wait),
      limit_(parts.limit),
      lane_(std::move(parts.lane)),
      broker_page_(std::move(parts.pages.broker)),
      client_page_(std::move(parts.pages.client)),
      figures_(*client_page_),
      pressure_(*broker_page_, *lane_, welcome_, std::move(parts.doorbell)) {
  lane_->resume_after_restart(welcome_, [this](Greeting greeting) { return take(std::move(greeting)); });
}

// Replaces the pages atomically: a reader finds the old page or the new one.
Result<void> Connection::take(Greeting greeting) {
  auto pages = map_pages(greeting);
  if (!pages) return pages.error();
  if (auto moved = replace_page(broker_page_, std::move(pages->broker)); !moved) return moved;
  if (auto moved = replace_page(client_page_, std::move(pages->client)); !moved) return moved;
  crash_at(CrashPoint::kClientRemapped);
  figures_.publish_all();
  pressure_.replace_doorbell(std::move(greeting.doorbell));
  return {};
}

Connection::~Connection() {
  pressure_.end();
  lane_->goodbye();
}

// The driver works only in the process that started it: a forked child would get errors without a reason. The
// child looks first, because a thread of its parent may have been inside the driver's opening.
Result<const cuda::Driver*> Connection::open_driver() const {
  constexpr std::uint64_t kNever = ~std::uint64_t{0};
  static std::atomic<std::uint64_t> started_in{kNever};
  const auto is_of_parent = [&] { return started_in != kNever && started_in != generation_; };
  if (!is_of_parent()) {
    auto driver = cuda::Driver::open(driver_folder_);
    if (!driver) return driver.error();
    std::uint64_t unset = kNever;
    started_in.compare_exchange_strong(unset, generation_);
    if (!is_of_parent()) return *driver;
  }
  return Error{
      Code::kFailedPrecondition,
      "the CUDA driver was started before this process was forked and does not work in the child; start "
      "workers by exec (Python: multiprocessing's \"spawn\" or \"forkserver\")"};
}

// The broker refuses a slice that is larger than the pool.
Result<Bytes> Connection::slice_limit(const SharedDevice& device, Bytes limit) const {
  if (device.is_host()) return limit;  // GPUMEM_LIMIT is of GPUs
  if (limit_.is_zero() || (!limit.is_zero() && limit <= limit_)) return limit;
  const auto figures = broker_figures();
  if (!figures) return figures.error();
  if (limit_.count >= figures->devices.at(device.index).pool) return limit;
  const Bytes unit = device.device->granularity;
  return std::max(limit_.rounded_down(unit), unit);
}

Result<std::size_t> Connection::device_index(const std::string& uuid) const {
  const auto wanted = cuda::parse_device_uuid(uuid);
  const auto place = device_place(uuid);
  if (place && *place < welcome_.devices.size()) return *place;
  std::string lent;
  for (std::size_t i = 0; i < welcome_.devices.size(); ++i) {
    const std::string& device = welcome_.devices[i];
    const auto own = cuda::parse_device_uuid(device);
    if (device == uuid || (wanted && own && *wanted == *own)) return i;
    lent += " " + device;
  }
  return Error{Code::kNotFound, "the broker does not lend device " + uuid +
                                    (lent.empty() ? ", nor any other" : ", but" + lent)};
}

Result<SharedDevice> Connection::find_host_store() const {
  const auto place = std::ranges::find(welcome_.devices, kHostStore);
  if (place == welcome_.devices.end()) return Error{Code::kNotFound, kNoHostStore};
  SharedDevice store{nullptr, nullptr, *place, static_cast<std::size_t>(place - welcome_.devices.begin())};
  if (!welcome_.is_host_of_driver) return store;
  const auto driver = open_driver();
  if (!driver) {
    return driver.error().in(
        "the driver allocates the memory of this host store, so each process that uses it needs the driver; "
        "without one, have the administrator set kind = \"memfd\" in [host] of gpumemd.toml");
  }
  store.driver = *driver;
  store.device = &cuda::host_device();
  return store;
}

Result<SharedDevice> Connection::find_device(const std::string& wanted) const {
  if (wanted == kHostStore)
    return Error{Code::kInvalidArgument, "the host store is no device of this process: name a GPU"};
  std::optional<cuda::DeviceUuid> uuid;
  if (!wanted.empty()) {
    std::string text = wanted;
    if (device_place(wanted)) {
      const auto index = device_index(wanted);
      if (!index) return index.error();
      text = welcome_.devices[*index];
    }
    auto parsed = cuda::parse_device_uuid(text);
    if (!parsed) return parsed.error();
    uuid = *parsed;
  }
  auto driver = open_driver();
  if (!driver) return driver.error();
  std::string lent;
  Error last{Code::kNotFound, "the broker lends no device"};
  for (std::size_t i = 0; i < welcome_.devices.size(); ++i) {
    const std::string& spelled = welcome_.devices[i];
    auto own = cuda::parse_device_uuid(spelled);
    lent += " " + spelled;
    if (!own || (uuid && *uuid != *own)) continue;
    auto device = (*driver)->find(*own);
    if (device) return SharedDevice{*driver, *device, spelled, i};
    last = device.error();
    if (uuid) return last;
  }
  return uuid ? Error{Code::kNotFound, "the broker does not lend device " + wanted + ", but" + lent} : last;
}

}  // namespace gpumem::client
