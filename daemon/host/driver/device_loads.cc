#include "daemon/host/driver/device_loads.h"

#include <utility>

#include "base/thread_guards.h"

namespace gpumem::host {
namespace {

std::optional<unsigned> value_of(const Result<unsigned>& answer) {
  return answer ? std::optional(*answer) : std::nullopt;
}

}  // namespace

DeviceLoads::DeviceLoads(const cuda::Nvml* nvml, std::vector<cuda::DeviceUuid> devices)
    : nvml_(nvml), devices_(std::move(devices)) {
  const SignalsBlocked blocked;
  if (nvml_ != nullptr) thread_ = std::thread([this] { work(); });
}

DeviceLoads::~DeviceLoads() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::vector<core::DeviceLoad> DeviceLoads::read() {
  if (nvml_ == nullptr) return {};
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const MutexLock lock(mutex_);
  answers_.clear();
  is_asked_ = true;
  changed_.notify_all();
  while (is_asked_ && std::chrono::steady_clock::now() < deadline) changed_.wait_until(mutex_, deadline);
  return answers_;
}

void DeviceLoads::work() {
  for (;;) {
    {
      const MutexLock lock(mutex_);
      while (!is_asked_ && !stopping_) changed_.wait(mutex_);
      if (stopping_) return;
    }
    std::vector<core::DeviceLoad> answers;
    for (const cuda::DeviceUuid& uuid : devices_)
      answers.push_back({value_of(nvml_->utilization(uuid)), value_of(nvml_->temperature(uuid))});
    {
      const MutexLock lock(mutex_);
      answers_ = std::move(answers);
      is_asked_ = false;
    }
    changed_.notify_all();
  }
}

}  // namespace gpumem::host
