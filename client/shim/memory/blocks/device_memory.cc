#include "client/shim/memory/blocks/device_memory.h"

#include <algorithm>

#include "base/text/device_name.h"
#include "base/text/time_format.h"
#include "client/session/connection.h"
#include "client/shim/memory/blocks/blocks.h"
#include "client/shim/memory/blocks/context.h"
#include "client/shim/system_mode.h"
#include "client/slice/borrower.h"
#include "cuda/event.h"

namespace gpumem::shim {
namespace {

constexpr Bytes kAlignment{512};
constexpr int kMostRounds = 4;

AllocatorOptions options_of(const std::string& device, Bytes limit, const Settings& settings) {
  return {.device = device, .limit = limit, .label = settings.name, .wait = settings.wait};
}

DeviceMemory::Uuid uuid_of(const cuda::Device& device) {
  DeviceMemory::Uuid bytes{};
  std::ranges::copy(device.uuid.bytes, bytes.begin());
  return bytes;
}

Bytes takes(Bytes bytes) { return bytes.rounded_up(kAlignment).value_or(bytes); }

}  // namespace

Result<Bytes> limit_of(const client::Connection& connection, std::size_t device, Bytes wanted, Bytes unit) {
  const auto figures = connection.broker_figures();
  if (!figures) return figures.error();
  const auto& known = figures->devices.at(device);
  const Bytes most{std::min(known.limit, known.pool)};
  const Bytes limit = wanted.is_zero() ? most : std::min(wanted, most);
  if (limit >= unit) return limit.rounded_down(unit);
  const bool is_tenants = most < unit;
  return Error{Code::kInvalidArgument,
               (is_tenants ? "the tenant's limit of " : "the limit of ") + to_string(limit) + " on " +
                   device_name(device) + " is less than one unit of the device's memory, " + to_string(unit) +
                   (is_tenants ? "; ask the administrator for a higher one" : "; set a higher one")};
}

Result<std::unique_ptr<DeviceMemory>> DeviceMemory::open(int ordinal, const Parts& parts) {
  const auto connection = parts.session.usable();
  if (!connection) return connection.error();
  const auto driver = cuda::Driver::open((*connection)->driver_folder());
  if (!driver) return driver.error();
  const auto& devices = (*driver)->devices();
  const auto device = std::ranges::find(devices, ordinal, &cuda::Device::ordinal);
  if (device == devices.end()) return Error{Code::kNotFound, "this device's memory cannot be shared"};
  const std::string uuid = to_string(device->uuid);
  const auto index = (*connection)->device_index(uuid);
  if (!index) return index.error();
  const auto limit = limit_of(**connection, *index, parts.settings.limit, device->granularity);
  if (!limit) return limit.error();
  auto shared_limit = std::make_shared<client::SharedLimit>(*limit);
  auto opened = Slices::open(*connection, options_of(uuid, *limit, parts.settings), shared_limit, nullptr);
  if (!opened) return opened.error();
  return std::unique_ptr<DeviceMemory>(
      new DeviceMemory(std::move(*opened), std::move(shared_limit), *device, parts));
}

DeviceMemory::DeviceMemory(std::unique_ptr<Slices> slices, std::shared_ptr<client::SharedLimit> shared_limit,
                           const cuda::Device& device, const Parts& parts)
    : slices_(slices.release()),
      shared_limit_(std::move(shared_limit)),
      session_(parts.session),
      settings_(parts.settings),
      captures_(parts.captures),
      uuid_(uuid_of(device)),
      has_direct_access_(device.has_direct_access),
      budget_(this->slices().engine().properties().limit),
      waits_(parts.settings.wait),
      outside_(this->slices()) {}

Slices* DeviceMemory::slices_of(CUdeviceptr address) const {
  Slices* one = &slices();
  while (one != nullptr && !one->engine().has_address(address)) one = one->before();
  return one;
}

bool DeviceMemory::is_replaced(Slices& failed) {
  if (&slices() != &failed) return true;
  if (!failed.is_lost()) return false;
  const MutexLock lock(replacing_);
  if (&slices() != &failed) return true;
  const auto replaced = replace(failed);
  if (!replaced) messages_.tell("no memory can be borrowed in another session: " + replaced.error().message);
  return replaced.has_value();
}

// Idle memory of the lost slice goes back to the driver, because no broker will ask for it. The pool of a new
// broker, which does not know the session, may be smaller than the limit by the memory that the session
// holds.
Result<void> DeviceMemory::replace(Slices& lost) {
  (void)lost.engine().trim_unused(limit());
  const auto connection = session_.usable();
  if (!connection) return connection.error();
  const std::string& device = lost.engine().properties().device;
  const auto index = (*connection)->device_index(device);
  const auto most =
      index ? limit_of(**connection, *index, limit(), granularity()) : Result<Bytes>(index.error());
  if (!most) return most.error();
  auto opened = Slices::open(*connection, options_of(device, *most, settings_), shared_limit_, &lost);
  if (!opened) return opened.error();
  for (const int peer : peers_) (void)(*opened)->engine().allow(peer);  // as it was before
  return outside_.move(**opened, [&] { slices_.store(opened->release(), std::memory_order_release); });
}

MemoryFigures DeviceMemory::figures() const {
  const Bytes used = std::min(budget_.used().rounded_up(granularity()).value_or(limit()), limit());
  const client::Connection& connection = slices().connection();
  const auto index = connection.device_index(slices().engine().properties().device);
  const Bytes others = index ? session_.most_of_others(connection, *index) : Bytes{};
  return {limit(), used, limit().minus(used).minus(others)};
}

CUresult DeviceMemory::allocate(const char* call, Bytes bytes, CUstream stream, CUdeviceptr* at) {
  free_deferred();
  if (is_left_to_driver()) return CUDA_ERROR_OUT_OF_MEMORY;
  const Bytes size = takes(bytes);
  if (!reserve_in_budget(size)) return refuse_over_limit(call, bytes);
  *at = slices().engine().try_allocate(size, stream);
  if (*at != 0) return CUDA_SUCCESS;
  auto found = ask_patiently(bytes, [&](const Slices& from, const Attempt& attempt) {
    return from.engine().allocate(size, stream, {}, {.wait = attempt.wait, .is_probe = attempt.is_probe});
  });
  if (found) {
    *at = *found;
    return CUDA_SUCCESS;
  }
  budget_.release(size);
  return refuse(call, bytes, found.error());
}

CUresult DeviceMemory::allocate_in_order(const char* call, Bytes bytes, CUstream stream, CUdeviceptr* at) {
  const CUresult result = allocate(call, bytes, stream, at);
  if (result != CUDA_SUCCESS || !is_ordered_.load() || !is_of_other_context(stream)) return result;
  return wait_for_default({.at = *at, .bytes = bytes});
}

// Memory that was freed in the order of a stream may come with work that only the legacy default stream is
// ordered behind.
CUresult DeviceMemory::allocate_for_all(const char* call, Bytes bytes, CUdeviceptr* at) {
  const CUresult result = allocate(call, bytes, nullptr, at);
  if (result != CUDA_SUCCESS || !is_ordered_.load()) return result;
  return wait_for_default({.at = *at, .bytes = bytes});
}

// While a graph is captured, the allocator orders nothing, and takes no memory that would have to be waited
// for.
CUresult DeviceMemory::wait_for_default(const Block& allocated) {
  const Captures::Wait wait(captures_);
  if (!wait.is_allowed()) return CUDA_SUCCESS;
  CUresult waited = CUDA_SUCCESS;
  if (!is_of_other_context(nullptr))
    waited = synchronize_stream(nullptr);
  else if (!slices().engine().wait_for_default())
    waited = CUDA_ERROR_UNKNOWN;
  if (waited != CUDA_SUCCESS) (void)free_idle(allocated);
  return waited;
}

bool DeviceMemory::is_of_other_context(CUstream stream) const {
  return (stream == nullptr || stream == CU_STREAM_LEGACY) && !slices().engine().is_default_current();
}

void DeviceMemory::release_stream(CUstream stream) {
  for (const Slices* one = &slices(); one != nullptr; one = one->before())
    (void)one->engine().release_stream(stream);
}

void DeviceMemory::mark_streams() {
  for (const Slices* one = &slices(); one != nullptr; one = one->before()) one->engine().mark_streams();
}

CUresult DeviceMemory::free_in_order(const Block& block, CUstream stream) {
  if (!is_ordered_.load(std::memory_order_relaxed)) is_ordered_.store(true);
  if (is_of_other_context(stream)) {
    const Captures::Wait wait(captures_);
    if (const CUresult done = wait.is_allowed() ? synchronize_stream(nullptr) : CUDA_SUCCESS;
        done != CUDA_SUCCESS)
      return done;
  }
  return free(block, stream);
}

CUresult DeviceMemory::free(const Block& block, CUstream stream) {
  const Slices* const of = slices_of(block.at);
  if (of == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool is_cached = of == &slices() && of->engine().try_deallocate(block.at, takes(block.bytes), stream);
  if (!is_cached && !of->engine().deallocate(block.at, allocator::kUnknownSize, stream))
    return CUDA_ERROR_INVALID_VALUE;
  if (of != &slices()) (void)of->engine().trim_unused(limit());  // of a session that was lost
  budget_.release(takes(block.bytes));
  if (block.pool) block.pool->free(block.bytes);
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::free_synchronized(const Block& block) {
  free_deferred();
  const CUresult waited = synchronize_beside(captures_, block.context);
  if (cuda::is_of_capture(waited)) {
    const MutexLock lock(mutex_);
    deferred_.push_back(block);
    return CUDA_SUCCESS;
  }
  const CUresult freed = free_idle(block);
  return cuda::is_context_gone(waited) ? freed : waited;
}

void DeviceMemory::free_deferred() {
  std::vector<Block> blocks;
  {
    const MutexLock lock(mutex_);
    if (deferred_.empty() || captures_.any()) return;
    blocks.swap(deferred_);
  }
  for (const Block& block : blocks) {
    if (!cuda::is_of_capture(synchronize_beside(captures_, block.context))) {
      (void)free_idle(block);
      continue;
    }
    const MutexLock lock(mutex_);
    deferred_.push_back(block);
  }
}

CUresult DeviceMemory::allow(int ordinal) {
  const MutexLock lock(replacing_);
  Result<void> allowed;
  for (const Slices* one = &slices(); one != nullptr && allowed; one = one->before())
    allowed = one->engine().allow(ordinal);
  if (allowed) {
    if (std::ranges::find(peers_, ordinal) == peers_.end()) peers_.push_back(ordinal);
    return CUDA_SUCCESS;
  }
  messages_.tell("device " + std::to_string(ordinal) + " cannot use the memory: " + allowed.error().message);
  return CUDA_ERROR_INVALID_DEVICE;
}

bool DeviceMemory::reserve_in_budget(Bytes bytes) {
  if (budget_.reserve(bytes)) return true;
  trim_driver();
  return budget_.reserve(bytes);
}

// Several rounds, because other threads free and take memory meanwhile.
bool DeviceMemory::take_room(Bytes bytes) {
  for (int round = 0; round < kMostRounds; ++round) {
    if (shared_limit_->take(bytes, bytes) == bytes) return true;
    const auto given = slices().engine().trim(bytes.minus(shared_limit_->left()));
    if (!given || given->is_zero()) trim_driver();
  }
  return false;
}

CUresult DeviceMemory::reserve(const char* call, Bytes bytes) {
  free_deferred();
  if (!reserve_in_budget(bytes)) return refuse_over_limit(call, bytes);
  if (take_room(bytes)) return CUDA_SUCCESS;
  budget_.release(bytes);
  return refuse(call, bytes,
                GrowError({Code::kResourceExhausted,
                           to_string(shared_limit_->taken()) + " of this process's limit of " +
                               to_string(limit()) + " are held, and what is free of them lies scattered"}));
}

void DeviceMemory::release(Bytes bytes) {
  shared_limit_->give_back(bytes);
  budget_.release(bytes);
}

void DeviceMemory::trim(Bytes keep) {
  allocator::Engine& engine = slices().engine();
  const auto figures = engine.statistics();
  if (figures && figures->committed > keep) (void)engine.trim_unused(figures->committed - keep);
}

std::chrono::milliseconds DeviceMemory::wait_after(const GrowError& refused, Bytes bytes) const {
  const Bytes own = budget_.used().minus(takes(bytes));  // the request itself is charged already
  if (!may_come_true(refused, bytes, own)) return {};
  return waits_.wait_for(bytes, WaitPolicy::Clock::now());
}

std::string DeviceMemory::wait_text(Bytes bytes, std::chrono::milliseconds wait) const {
  const std::string& uuid = slices().engine().properties().device;
  const auto place = slices().connection().device_index(uuid);
  return "waiting for " + (bytes.is_zero() ? "memory for a context" : to_string(bytes)) + " of " +
         (place ? device_name(*place) : uuid) + "; at most " + span_text(wait);
}

bool DeviceMemory::leave_to_driver(const Error& why) {
  const bool leaves = is_away(why) && is_system_mode();
  if (leaves) is_left_.store(true, std::memory_order_relaxed);
  return leaves;
}

CUresult DeviceMemory::refuse(const char* call, Bytes bytes, const GrowError& why) {
  if (leave_to_driver(why)) return CUDA_ERROR_OUT_OF_MEMORY;
  const bool is_narrow =
      slices().engine().properties().limit < limit();  // what it cannot have is not there now
  if (why.code == Code::kInternal || (why.code == Code::kInvalidArgument && !is_narrow)) {
    failures_.tell(std::string(call) + ": " + why.message);
    return why.code == Code::kInternal ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_INVALID_VALUE;
  }
  const std::string of = bytes.is_zero() ? "" : " of " + to_string(bytes);
  if (why.code == Code::kCancelled) {
    client::say(std::string(call) + of + " is given up: " + why.message);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  messages_.tell(std::string(call) + of + " is refused: " + why.message);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void DeviceMemory::tell_refusal_of_driver(const char* call, Bytes bytes, CUresult answered) {
  if (answered != CUDA_ERROR_OUT_OF_MEMORY) return;
  messages_.tell(std::string(call) + " of " + to_string(bytes) +
                 " is refused by the driver: the device has no such memory beside what the broker lends; see "
                 "`gpumem status`");
}

CUresult DeviceMemory::refuse_over_limit(const char* call, Bytes bytes) {
  return refuse(
      call, bytes,
      GrowError({Code::kResourceExhausted, to_string(budget_.used()) + " of this process's limit of " +
                                               to_string(limit()) + " are in use"}));
}

}  // namespace gpumem::shim
