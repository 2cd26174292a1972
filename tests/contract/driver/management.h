#pragma once
#include <algorithm>

#include "cuda/library.h"
#include "tests/contract/driver/fixture.h"

// The calls of the management library that tests make past the port, under shorter names.
#define GPUMEM_CONTRACT_NVML(CALL)                      \
  CALL(init, nvmlInit)                                  \
  CALL(shutdown, nvmlShutdown)                          \
  CALL(count, nvmlDeviceGetCount)                       \
  CALL(by_index, nvmlDeviceGetHandleByIndex)            \
  CALL(by_uuid, nvmlDeviceGetHandleByUUID)              \
  CALL(uuid, nvmlDeviceGetUUID)                         \
  CALL(index, nvmlDeviceGetIndex)                       \
  CALL(name, nvmlDeviceGetName)                         \
  CALL(memory, nvmlDeviceGetMemoryInfo)                 \
  CALL(memory_v2, nvmlDeviceGetMemoryInfo_v2)           \
  CALL(processes, nvmlDeviceGetComputeRunningProcesses) \
  CALL(utilization, nvmlDeviceGetUtilizationRates)      \
  CALL(persistence, nvmlDeviceGetPersistenceMode)
#define GPUMEM_CONTRACT_TEXT_OF(name) #name
#define GPUMEM_CONTRACT_SYMBOL(name) GPUMEM_CONTRACT_TEXT_OF(name)

namespace gpumem::contract {

/// The management library, initialised for its lifetime. Any process.
struct Management {
  Management() {
    auto library = cuda::Library::open(driver_folder(), "libnvidia-ml.so.1");
    if (!library) {
      ADD_FAILURE() << library.error().message;
      return;
    }
#define GPUMEM_CONTRACT_BIND(member, name)                                      \
  if (auto bound = library->bind(member, GPUMEM_CONTRACT_SYMBOL(name)); !bound) \
    ADD_FAILURE() << bound.error().message;
    GPUMEM_CONTRACT_NVML(GPUMEM_CONTRACT_BIND)
#undef GPUMEM_CONTRACT_BIND
    EXPECT_EQ(init(), NVML_SUCCESS);
  }
  ~Management() {
    if (shutdown != nullptr) shutdown();
  }
  Management(const Management&) = delete;
  Management& operator=(const Management&) = delete;

  nvmlDevice_t device(const cuda::DeviceUuid& wanted) const {
    nvmlDevice_t found{};
    EXPECT_EQ(by_uuid(to_string(wanted).c_str(), &found), NVML_SUCCESS);
    return found;
  }
  std::vector<nvmlProcessInfo_t> processes_of(nvmlDevice_t device) const {
    std::vector<nvmlProcessInfo_t> listed(256);
    auto room = static_cast<unsigned>(listed.size());
    EXPECT_EQ(processes(device, &room, listed.data()), NVML_SUCCESS);
    listed.resize(room);
    return listed;
  }

#define GPUMEM_CONTRACT_MEMBER(member, name) decltype(&::name) member = nullptr;
  GPUMEM_CONTRACT_NVML(GPUMEM_CONTRACT_MEMBER)
#undef GPUMEM_CONTRACT_MEMBER
};

}  // namespace gpumem::contract
