#include "client/shim/memory/process.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>

#include "base/system/large_stack.h"
#include "base/system/small_file.h"
#include "base/system/system_mode.h"
#include "client/lane/silent_brokers.h"
#include "client/process/runtime_folder.h"
#include "client/session/connection.h"
#include "client/shim/memory/blocks/context.h"
#include "client/shim/real.h"
#include "client/shim/system_mode.h"

namespace gpumem::shim {
namespace {

/// The allocation unit, where the driver has not been started and cannot be asked.
constexpr Bytes kUsualUnit = mebibytes(2);

constinit RealCall<decltype(::cuDeviceCanAccessPeer)> real_can_access("cuDeviceCanAccessPeer");

/// In system mode: whether the process is left to the driver, by the rules of the machine or because it may
/// not connect to the broker. Makes no socket and no thread.
bool is_left_to_driver() {
  if (::getauxval(AT_SECURE) != 0 || ::access(system_mode::kOff, F_OK) == 0) return true;
  const auto status = read_small_file("/proc/self/status");
  const auto process = status ? system_mode::ProcessFacts::in(*status) : std::nullopt;
  const std::filesystem::path runtime = client::runtime_folder("");
  return !process || system_mode::Rules::read(runtime).leave_to_driver(*process) ||
         !client::may_connect(runtime);
}

}  // namespace

Process::Process() {
  pinned_.set_trim([this] {
    const BesideCaptures beside;
    driver_pools_.trim(pinned_);
  });
}

Process& Process::current() {
  static std::atomic<Process*> latest{nullptr};
  return client::this_process(latest, [](const Process*) { return std::unique_ptr<Process>(new Process); });
}

CUresult Process::start() {
  const auto is_done = [](State state) { return state == State::kBrokered || state == State::kForwarded; };
  if (is_done(state_.load(std::memory_order_acquire))) return CUDA_SUCCESS;
  return on_large_stack([&] {
    const MutexLock lock(mutex_);
    return is_done(state_.load()) ? CUDA_SUCCESS : connect();
  });
}

CUresult Process::refuse(const std::string& why) {
  client::say(why);
  state_.store(State::kRefused, std::memory_order_release);
  return CUDA_ERROR_SYSTEM_NOT_READY;
}

void Process::connect_by_system() {
  const auto settings = Settings::from_environment();
  if (settings && !is_left_to_driver() && borrow_by(*settings, kSystemPatience)) return;
  client::SilentBrokers::of_process().forget();
  state_.store(State::kForwarded, std::memory_order_release);
}

CUresult Process::connect() {
  if (is_system_mode()) {
    connect_by_system();
    return CUDA_SUCCESS;
  }
  const auto settings = Settings::from_environment();
  if (!settings) return refuse(settings.error().message);
  const client::SignalWatch signals;  // one that comes during the first attempt ends the wait, too
  const auto begun = WaitPolicy::Clock::now();
  const auto ask = [&] { return session_.open(settings->name, kUsualPatience); };
  auto opened = ask();
  // Where there is no broker, that is known at once.
  const bool is_awaited = WaitPolicy::Clock::now() - begun > kUsualPatience / 2;
  if (!opened && is_away(opened.error()) && is_awaited && !settings->optional &&
      settings->wait > kUsualPatience) {
    client::Pace pace;
    const client::WaitNotice notice(pace, wait_for_broker_text(opened.error(), settings->wait));
    opened = ask_while_away(begun + settings->wait, ask);
  }
  if (opened) {
    borrow(*settings);
  } else if (opened.error().code == Code::kCancelled) {
    return refuse(opened.error().message);
  } else if (!settings->optional) {
    return refuse(opened.error().message + " (GPUMEM_OPTIONAL=1 runs programs without a broker, too)");
  } else {
    client::say(opened.error().message + "; going on without it, with the driver's own memory");
    state_.store(State::kForwarded, std::memory_order_release);
  }
  return CUDA_SUCCESS;
}

Result<void> Process::borrow_by(const Settings& settings, std::chrono::milliseconds patience) {
  if (auto opened = session_.open(settings.name, patience); !opened) return opened;
  borrow(settings);
  return {};
}

void Process::borrow(const Settings& settings) {
  settings_ = settings;
  opening_.emplace(settings.wait);
  state_.store(State::kBrokered, std::memory_order_release);
}

bool Process::connect_quietly() {
  if (state_.load() == State::kNew && is_system_mode()) {
    connect_by_system();
  } else if (state_.load() == State::kNew) {
    const auto settings = Settings::from_environment();
    if (!settings || !borrow_by(*settings)) return false;
  }
  return state_.load() == State::kBrokered;
}

DeviceMemory* Process::open_memory_of(CUdevice device) const {
  const auto index = static_cast<std::size_t>(device);
  return device >= 0 && index < kDevices ? memory_[index].load(std::memory_order_acquire) : nullptr;
}

Process::Found Process::memory_of(CUdevice device) {
  if (!is_brokered() || device < 0 || static_cast<std::size_t>(device) >= kDevices) return {};
  DeviceMemory* const known = open_memory_of(device);
  if (known == nullptr) return on_large_stack([&] { return open(device); });
  return {CUDA_SUCCESS, known->is_left_to_driver() ? nullptr : known};
}

Process::Found Process::open(CUdevice device) {
  const auto index = static_cast<std::size_t>(device);
  const MutexLock lock(mutex_);
  if (DeviceMemory* const known = memory_[index].load(); known != nullptr) return {CUDA_SUCCESS, known};
  if (state_.load() == State::kRefused) return {CUDA_ERROR_NOT_INITIALIZED, nullptr};  // cuInit has failed
  if (not_lent_[index] || state_.load() == State::kForwarded) return {};
  const DeviceMemory::Parts parts{session_, settings_, captures_};
  const auto open_once = [&] {
    const auto session = session_.usable();
    auto opened = DeviceMemory::open(device, parts);
    // By a failure at the latest it is known that the session is lost.
    if (!opened && session) {
      const auto now = session_.usable();
      if (now && *now != *session) opened = DeviceMemory::open(device, parts);
    }
    return opened;
  };
  const auto now = WaitPolicy::Clock::now();
  const auto patience = is_system_mode() ? kUsualPatience : opening_->wait_for({}, now);
  auto opened = ask_while_away(now + patience, open_once);
  if (!opened && (is_away(opened.error()) || opened.error().code == Code::kCancelled))
    opening_->timed_out({}, WaitPolicy::Clock::now());
  if (opened) {
    for (const int peer : peers_[index]) (void)(*opened)->allow(peer);
    allow_copies(**opened);
    (*opened)->set_trim([this, memory = opened->get()] {
      const BesideCaptures beside;
      driver_pools_.trim(*memory);
      graph_memory_.trim(*memory);
    });
    memory_[index].store(opened->get(), std::memory_order_release);
    return {CUDA_SUCCESS, opened->release()};
  }
  if (opened.error().code == Code::kNotFound) {
    not_lent_[index] = true;
    if (!is_device(device) || is_system_mode()) return {};  // the driver says so, or nothing is said
    client::say("memory of device " + std::to_string(device) + " is not borrowed: " + opened.error().message);
    return {};
  }
  if (is_system_mode()) {
    leave_to_driver(index);
    return {};
  }
  messages_.tell("no memory of the program's device " + std::to_string(device) + ": " +
                 opened.error().message);
  return {CUDA_ERROR_OUT_OF_MEMORY, nullptr};
}

void Process::leave_to_driver(std::size_t device) {
  not_lent_[device] = true;
  if (std::ranges::all_of(memory_, [](const auto& one) { return one.load() == nullptr; }))
    state_.store(State::kForwarded, std::memory_order_release);
}

// Copies between devices reach what cuMemAlloc gives without peer access, but borrowed memory only with it.
void Process::allow_copies(DeviceMemory& opened) {
  imports_.allow(opened.ordinal());
  for (const auto& one : memory_) {
    DeviceMemory* const other = one.load();
    if (other == nullptr) continue;
    int there = 0, back = 0;
    if (real_can_access(&there, opened.ordinal(), other->ordinal()) == CUDA_SUCCESS && there != 0)
      (void)other->allow(opened.ordinal());
    if (real_can_access(&back, other->ordinal(), opened.ordinal()) == CUDA_SUCCESS && back != 0)
      (void)opened.allow(other->ordinal());
  }
}

CUresult Process::allow_peer(CUdevice owner, CUdevice device) {
  const auto index = static_cast<std::size_t>(owner);
  if (owner < 0 || index >= kDevices) return CUDA_ERROR_INVALID_DEVICE;
  const MutexLock lock(mutex_);
  if (DeviceMemory* const known = memory_[index].load(); known != nullptr) return known->allow(device);
  peers_[index].push_back(device);
  return CUDA_SUCCESS;
}

void Process::settle(DeviceMemory& memory) {
  memory.free_deferred();
  driver_pools_.settle(memory);
  graph_memory_.settle(memory);
}

void Process::release_stream(CUstream stream) {
  for (const auto& one : memory_)
    if (DeviceMemory* const memory = one.load(std::memory_order_acquire); memory != nullptr)
      memory->release_stream(stream);
}

DeviceMemory* Process::memory_at(CUdeviceptr address) const {
  for (const auto& one : memory_) {
    DeviceMemory* const memory = one.load(std::memory_order_acquire);
    if (memory != nullptr && memory->has_address(address)) return memory;
  }
  return nullptr;
}

std::optional<MemoryFigures> Process::figures(const DeviceMemory::Uuid& uuid) {
  const auto figures = figures_now(uuid);
  const MutexLock lock(shown_mutex_);
  auto& shown = shown_.try_emplace(uuid, figures).first->second;
  if (shown && figures) shown = figures;
  return shown;
}

std::optional<MemoryFigures> Process::figures_now(const DeviceMemory::Uuid& uuid) {
  if (state_.load() == State::kNew && !has_slice_from_start()) return std::nullopt;
  for (const auto& one : memory_) {
    const DeviceMemory* const memory = one.load(std::memory_order_acquire);
    if (memory == nullptr || memory->uuid() != uuid) continue;
    return memory->is_left_to_driver() ? std::nullopt : std::optional(memory->figures());
  }
  const MutexLock lock(mutex_);
  if (!connect_quietly()) return std::nullopt;
  cuda::DeviceUuid named;
  std::ranges::copy(uuid, named.bytes.begin());
  const auto connection = session_.usable();
  if (!connection || *connection == nullptr) return std::nullopt;
  const auto index = (*connection)->device_index(to_string(named));
  const auto limit =
      index ? limit_of(**connection, *index, settings_.limit, kUsualUnit) : Result<Bytes>(index.error());
  if (!limit) return std::nullopt;
  return MemoryFigures{*limit, {}, limit->minus(session_.most_of_others(**connection, *index))};
}

}  // namespace gpumem::shim
