#include <array>

#include "bench/driver/driver_calls.h"
#include "cuda/memory.h"

namespace gpumem::bench {
namespace {

constexpr int kRounds = 1000;
constexpr int kContextRounds = 100;

}  // namespace

void time_device_calls(CallTimes& times, const cuda::Driver& driver, const cuda::Device& device) {
  const cuda::Api& api = driver.api();
  const CUmemAllocationProp properties = cuda::allocation_properties(device.ordinal);
  std::array<char, 256> name{};
  const char* text = nullptr;
  int number = 0;
  std::size_t bytes = 0;
  CUuuid uuid{};
  CUdevice ordinal = 0;
  CUcontext context = nullptr;
  const auto length = static_cast<int>(name.size());
  for (int i = 0; i < kRounds; ++i) {
    times.time({"cuInit again", {}}, [&] { return api.cuInit(0); });
    times.time({"cuDriverGetVersion", {}}, [&] { return api.cuDriverGetVersion(&number); });
    times.time({"cuGetErrorName", {}}, [&] { return api.cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text); });
    times.time({"cuGetErrorString", {}},
               [&] { return api.cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text); });
    times.time({"cuDeviceGetCount", {}}, [&] { return api.cuDeviceGetCount(&number); });
    times.time({"cuDeviceGet", {}}, [&] { return api.cuDeviceGet(&ordinal, device.ordinal); });
    times.time({"cuDeviceGetName", {}}, [&] { return api.cuDeviceGetName(name.data(), length, ordinal); });
    times.time({"cuDeviceGetUuid", {}}, [&] { return api.cuDeviceGetUuid(&uuid, ordinal); });
    times.time({"cuDeviceTotalMem", {}}, [&] { return api.cuDeviceTotalMem(&bytes, ordinal); });
    times.time({"cuDeviceGetAttribute", {}}, [&] {
      return api.cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ordinal);
    });
    times.time({"cuMemGetAllocationGranularity", {}}, [&] {
      return api.cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    });
    times.time({"cuCtxGetCurrent", {}}, [&] { return api.cuCtxGetCurrent(&context); });
  }
}

void time_context_calls(CallTimes& times, const cuda::Driver& driver, const cuda::Device& device) {
  const cuda::Api& api = driver.api();
  CUcontext context = nullptr;
  std::size_t free = 0;
  std::size_t total = 0;
  const auto key = [](const char* name) { return TimedCall{name, {}, 1, true}; };
  for (int i = 0; i < kContextRounds; ++i) {
    times.time(key("cuDevicePrimaryCtxRetain again"),
               [&] { return api.cuDevicePrimaryCtxRetain(&context, device.ordinal); });
    times.time(key("cuCtxPushCurrent"), [&] { return api.cuCtxPushCurrent(context); });
    times.time(key("cuCtxSynchronize"), [&] { return api.cuCtxSynchronize(); });
    times.time(key("cuMemGetInfo"), [&] { return api.cuMemGetInfo(&free, &total); });
    times.time(key("cuCtxPopCurrent"), [&] { return api.cuCtxPopCurrent(&context); });
    times.time(key("cuDevicePrimaryCtxRelease, not the last"),
               [&] { return api.cuDevicePrimaryCtxRelease(device.ordinal); });
  }
}

}  // namespace gpumem::bench
